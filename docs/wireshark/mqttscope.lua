-- Findings of mqttscope as fields of Wireshark: mqttscope.rule, mqttscope.severity, mqttscope.confidence,
-- mqttscope.message, mqttscope.statement.
--
--   mqttscope lint site.pcapng --output jsonl=site.jsonl
--   tshark -X lua_script:mqttscope.lua -o mqttscope.findings:site.jsonl -r site.pcapng -Y 'mqttscope.rule == "PUB103"'
--
-- Without the preference, the findings of site.pcapng are read from the variable MQTTSCOPE_FINDINGS.
-- A file with findings of several captures needs the name of the one that is open: the preference "capture".

local findings = Proto("mqttscope", "mqttscope")
local fields = {
    rule = ProtoField.string("mqttscope.rule", "Rule"),
    severity = ProtoField.string("mqttscope.severity", "Severity"),
    confidence = ProtoField.string("mqttscope.confidence", "Confidence"),
    message = ProtoField.string("mqttscope.message", "Finding"),
    statement = ProtoField.string("mqttscope.statement", "Statement"),
}
findings.fields = { fields.rule, fields.severity, fields.confidence, fields.message, fields.statement }
findings.prefs.findings = Pref.string("Findings", "", "File that `mqttscope lint --output jsonl=FILE` wrote")
findings.prefs.capture = Pref.string("Capture", "", "Name of the capture in that file, if it has findings of several")

local levels = { error = PI_ERROR, warning = PI_WARN, info = PI_NOTE }
local escapes = { b = "\b", f = "\f", n = "\n", r = "\r", t = "\t" }
local by_frame = {}

-- UTF-8 of a code point; a half of a surrogate pair becomes U+FFFD, since pairs are joined before.
local function character(code)
    if code < 0x80 then return string.char(code) end
    if code < 0x800 then return string.char(0xC0 + math.floor(code / 64), 0x80 + code % 64) end
    if code >= 0xD800 and code < 0xE000 then code = 0xFFFD end
    if code < 0x10000 then
        return string.char(0xE0 + math.floor(code / 4096), 0x80 + math.floor(code / 64) % 64, 0x80 + code % 64)
    end
    return string.char(0xF0 + math.floor(code / 262144), 0x80 + math.floor(code / 4096) % 64,
        0x80 + math.floor(code / 64) % 64, 0x80 + code % 64)
end

-- The string that begins at the quote at `start`, and the position after it.
local function read_string(line, start)
    local parts, position = {}, start + 1
    while true do
        local stop = line:find('["\\]', position)
        if not stop then return nil end
        parts[#parts + 1] = line:sub(position, stop - 1)
        if line:sub(stop, stop) == '"' then return table.concat(parts), stop + 1 end
        local kind = line:sub(stop + 1, stop + 1)
        if kind == "u" then
            local code = tonumber(line:sub(stop + 2, stop + 5), 16) or 0xFFFD
            position = stop + 6
            local low = line:match("^\\u(%x%x%x%x)", position)
            if code >= 0xD800 and code < 0xDC00 and low then
                code = 0x10000 + (code - 0xD800) * 1024 + tonumber(low, 16) - 0xDC00
                position = position + 6
            end
            parts[#parts + 1] = character(code)
        else
            parts[#parts + 1] = escapes[kind] or kind
            position = stop + 2
        end
    end
end

-- The value that begins at `position`, and the position after it.  Objects and lists become tables.
local function read_value(line, position)
    position = line:find("%S", position)
    if not position then return nil end
    local first = line:sub(position, position)
    if first == '"' then return read_string(line, position) end
    if first == "{" or first == "[" then
        local value, close = {}, first == "{" and "}" or "]"
        position = line:find("%S", position + 1)
        if position and line:sub(position, position) == close then return value, position + 1 end
        while position do
            local key, item = #value + 1, nil
            if first == "{" then
                key, position = read_string(line, line:find('"', position, true) or #line)
                position = position and line:find(":", position, true)
                if not position then return nil end
                position = position + 1
            end
            item, position = read_value(line, position)
            if not position then return nil end
            value[key] = item
            position = line:find("[%]},]", position)
            if not position then return nil end
            if line:sub(position, position) ~= "," then return value, position + 1 end
            position = position + 1
        end
        return nil
    end
    local word, after = line:match("^([%w%.%+%-]+)()", position)
    if word == "true" or word == "false" then return word == "true", after end
    return tonumber(word), after
end

local function keep(finding)
    local wanted = findings.prefs.capture
    if type(finding) ~= "table" or not finding.rule or not finding.frame then return end
    if wanted ~= "" and finding.capture ~= wanted then return end
    local rows = by_frame[finding.frame] or {}
    by_frame[finding.frame] = rows
    rows[#rows + 1] = finding
end

function findings.init()
    by_frame = {}
    local path = findings.prefs.findings
    if path == "" then path = os.getenv("MQTTSCOPE_FINDINGS") or "" end
    if path == "" then return end
    local file, reason = io.open(path, "r")
    if not file then
        io.stderr:write("mqttscope.lua: the findings cannot be read: " .. reason .. "\n")
        return
    end
    for line in file:lines() do keep(read_value(line, 1)) end
    file:close()
end

function findings.dissector(buffer, packet, tree)
    for _, finding in ipairs(by_frame[packet.number] or {}) do
        local item = tree:add(findings, finding.rule .. " " .. tostring(finding.message))
        item:add(fields.rule, finding.rule)
        item:add(fields.severity, tostring(finding.severity))
        item:add(fields.confidence, tostring(finding.confidence))
        item:add(fields.message, tostring(finding.message))
        for _, statement in ipairs(finding.statements or {}) do item:add(fields.statement, tostring(statement)) end
        item:add_expert_info(PI_PROTOCOL, levels[finding.severity] or PI_NOTE, finding.rule)
    end
end

register_postdissector(findings)
