"""Tools for developers of mqttscope; not part of the installed package."""
