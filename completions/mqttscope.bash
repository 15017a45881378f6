_mqttscope_completion() {
    local IFS=$'\n'
    local response

    response=$(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD _MQTTSCOPE_COMPLETE=bash_complete $1)

    for completion in $response; do
        IFS=',' read type value <<< "$completion"

        if [[ $type == 'dir' ]]; then
            COMPREPLY=()
            compopt -o dirnames
        elif [[ $type == 'file' && ${#COMPREPLY[@]} == 0 ]]; then
            compopt -o default
        elif [[ $type == 'file' ]]; then
            compopt -o filenames
            mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "${COMP_WORDS[COMP_CWORD]}")
        elif [[ $type == 'plain' ]]; then
            COMPREPLY+=($value)
        fi
    done

    return 0
}

_mqttscope_completion_setup() {
    complete -o nosort -F _mqttscope_completion mqttscope
}

_mqttscope_completion_setup;
