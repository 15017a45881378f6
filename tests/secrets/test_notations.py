"""Where the values of secrets stand, in all notations: the values are marked with guillemets."""

from __future__ import annotations

import pytest

from mqttscope.secrets.forms import joined
from mqttscope.secrets.names import MIN_DIGITS, MIN_DOUBTFUL
from mqttscope.secrets.notations import MIN_SPOKEN, named_values

HIDDEN = [
    # JSON and what looks like it
    '{"password":"«hush!»"}',
    '{ "password" : "«a b»" , "a": 1 }',
    '{"password":"«a\\"b»","a":"c"}',
    "{'password':'«hush!»'}",
    '{password:"«hush!»"}',
    "{password: «hush!», a: 1}",
    '{"password":«12345678»}',
    '{"password":{"value":"«hush!»","n":{"x":["«a»",«12345»,true]}},"a":"b"}',
    '{"tokens":["«a»","«b»"],"a":"b"}',
    '{"pass\\u0077ord":"«hush!»"}',
    '{"\\u0070assword":"«hush!»"}',
    '{"i":"{\\"password\\":\\"«hush!»\\"}"}',
    '{"i":"{\\"password\\":{\\"v\\":\\"«hush!»\\"},\\"a\\":1}"}',
    '{"name":"password","value":"«hush!»"}',
    '{"value":"«hush!»","name":"password"}',
    '[{"key":"password","data":"«hush!»"},{"key":"a","data":"b"}]',
    '{"name":"password","meta":{"a":{"b":"c"}},"value":"«hush!»"}',
    '{"value":"«hush!»","meta":{"value":"a"},"name":"password"}',
    '{"name":"password","hint":"}","value":"«hush!»"}',
    '{"name":"password","hint":"a \\"{\\" is","value":"«hush!»"}',
    '[["password","«hush!»"],["a","b"]]',
    '{"password":"«cut off»',
    '{"password value":"«hush!»"}',
    '{"wifi password":"«hush!»"}',
    '{"api key":"«hush!»"}',
    "array('password' => '«hush!»')",
    # lines
    "password = «correct horse battery»\nuser = bob",
    "password=«hush!»",
    "export DB_PASSWORD=«hush!»\nA=b",
    "# password: «hush!»",
    "user: bob\npassword: «correct horse»\nport: 1",
    "password: «hush!» # of the hall",
    'password: "«hush!»"\n',
    "passwords:\n  - «a»\n  - «b»\nuser: bob",
    "password: |\n  «line one»\n  «line two»\nuser: bob",
    "db:\n  password:\n    value: «hush!»\n  user: bob",
    "- name: DB_PASSWORD\n  value: «hush!»\n- name: A\n  value: b",
    "X-API-Key: «hush!»\r\nHost: a",
    "Authorization: Bearer «abc.def»",
    'key = """a"""\ntoken = """«a\nb»"""',
    # forms, connections, addresses
    "a=1&token=«hush!»&b=2",
    "token=«hush!»&b=2",
    "HostName=h;SharedAccessKey=«a/b=»;Entity=e",
    "Server=a;User Id=b;Password=«c»;",
    "user=bob password=«hush!» port=1",
    "https://x/a?sig=«hush!»&a=1",
    "mqtt://user:«hush!»@broker:1883",
    "%7B%22password%22%3A%22«hush!»%22%7D",
    "&lt;password&gt;«hush!»&lt;/password&gt;",
    "<a>{&quot;password&quot;:&quot;«hush!»&quot;}</a>",
    # XML
    "<password>«hush!»</password><a>b</a>",
    '<password type="plain">«hush!»</password>',
    "<ns:password>«hush!»</ns:password>",
    "<password><value>«hush!»</value></password><a>b</a>",
    "<password><![CDATA[«a<bcd»]]></password>",
    '<user name="bob" password="«hush!»"/>',
    '<property name="password" value="«hush!»"/>',
    '<property value="«hush!»" name="password"/>',
    '<entry key="password">«hush!»</entry>',
    # tables
    "user,password\nbob,«hush!»\nann,«b»\n",
    'user;password;a\r\nbob;"«a;b»";1\r\n',
    "password\tuser\n«hush!»\tbob",
    # commands and prose
    "mosquitto_pub -u bob -P «hush!» -t a",
    "curl -u bob:«hush!» http://a",
    "tool --api-key «hush!» --port 1",
    "the password is «hunter2x».",
    "login of bob with password '«hush!»' failed",
    # far apart, long, or beside other names
    f'{{"name":"password","a":"{"x" * 500}","value":"«hush!»"}}',
    f'{{"value":"«hush!»","a":"{"x" * 500}","name":"password"}}',
    f'<property name="password" a="{"x" * 500}" value="«hush!»"/>',
    f'<property value="«hush!»" a="{"x" * 250}>{"x" * 250}" name="password"/>',
    f'<password a="{"x" * 500}">«hush!»</password>',
    f"- name: DB_PASSWORD  # {'x' * 500}\n  value: «hush!»",
    f"<{'a' * 90}_password>«hush!»</a>",
    f"{'a' * 90}_password: «correct horse»",
    f"password{'_value' * 20}=«hush!»",
    f"{{{' ' * 200}password: «hush!»",
    f"{' ' * 100}password: «correct horse»",
    '{"type":"password","wifi_password":"«a b»","value":"«hush!»"}',
    # names with parts
    '{"Wifi/Password/Value":"«hush!»"}',
    '{"Password/1":"«hush!»","Password/of/the/device":"a"}',
    r'{"a":"{\"mqtt/token/text\":\"«hush!»\"}"}',
    "Wifi/Password/Value=«hush!»",
    "site/password/help=a b",
    # the value on another line, or far from its sign
    '{"password":\n"«hush!»"}',
    '{"password"\n: "«hush!»"}',
    '{"passwords":\n  [\n "«hush!»"]}',
    '{"password" :\t\n\t"«hush!»"}',
    f'{{"password":{" " * 100}"«hush!»"}}',
    "a: {password:\n   «hush!», b: 1}",
    f"password{' ' * 40}= «hush!»",
    # blocks, tags, anchors and quoted keys of YAML
    "password: |2-\n  «hush!»\nuser: bob",
    "password: !!str |\n  «hush!»",
    "password: &pw\n  «hush!»",
    "password: &pw «hush!»",
    "password: # of the hall\n  «hush!»",
    "passwords: # of the hall\n  - «hush!»",
    "password: «correct»\n  «horse»\nuser: bob",
    "- password: «correct»\n  user: bob",
    '"password": «hush!»\n',
    "wifi password: «hush!»\n",
    "- name: password\n  type: str\n  value: «hush!»\n- name: a\n  value: b",
    "- name: a\n  value: b\n- value: «hush!»\n  type: str\n  name: password",
    # lines to their ends
    "password = «true story»",
    "password = {}«x»",
    "password = [«a»]«b»",
    'password = "«a»"«b»\nc = d',
    "password = «abc #bc»",
    # children, attributes and CDATA of XML
    "<property><name>password</name><value>«hush!»</value></property>",
    "<property>\n<value>«hush!»</value>\n<name>password</name>\n</property>",
    '<property name="password"><value>«hush!»</value></property>',
    "<key>password</key><string>«hush!»</string>",
    '<password value="«hush!»"/><a>b</a>',
    '<password><plain value="«hush!»"/></password>',
    "<password>\n <![CDATA[«hush!»]]></password><a>b</a>",
    "<password><![CDATA[«a»]]><![CDATA[«b»]]></password>",
    "<token><tokenId>«a»</tokenId>«b»</token><a>b</a>",
    # headers of tables
    "größe,password\na,«hush!»",
    "time [s],password\na,«hush!»",
    "user*,password*\na,«hush!»",
    "#,user,password\n1,bob,«hush!»",
    ",user,password\n1,bob,«hush!»",
    "# of the hall\nuser,password\nbob,«hush!»",
    "\nuser,password\nbob,«hush!»",
    "sep=,\nuser,password\nbob,«hush!»",
    "user,password\rbob,«hush!»\rann,«b»",
    'user,password\n"bob","«a"",b»"',
    'user,password,a\nbob, "«a, b»",c',
    # forms with brackets, and values with signs
    "a=1&passwords[]=«hush!»&b=2",
    "user[password]=«hush!»&b=2",
    "a=1&password=«null!x»&b=2",
    "a=1&password=«a<bcd»&b=2",
    "a=1&password=«a'bc»&b=2",
    "a=1&password=«a{bc»&b=2",
    "{password: «1234 xy»}",
    "{password: «12-x»}",
    "{password: «123456.x», a: 1}",
    # commands
    "tool --token '«a b»' --port 1",
    "curl -u 'bob:«a b»' http://a",
    "curl -ubob:«hush!» http://a",
    "mosquitto_pub -u bob -P«hush!» -t a",
    "mosquitto_pub -u bob --pw «hush!» -t a",
    "sshpass -p«hush!» ssh a",
    '["mosquitto_pub","-u","bob","-P","«hush!»"]',
    "curl -H 'X-API-Key: «hush!»' http://a",
    # prose
    "the password is: '«hush!»'",
    "password '«a b»' is wrong",
    "password has been set to «hunter2x»",
    # names in longer texts
    '{"name":"password","stringValue":"«hush!»"}',
    '{"name":"Wi-Fi Password:","value":"«hush!»"}',
    '{"name":"password ","value":"«hush!»"}',
    '{"name":"The password","value":"«hush!»"}',
    '{"op":"replace","path":"/mqtt/password","value":"«hush!»"}',
    '{"password_":"«hush!»"}',
    # addresses and terms
    '{"u":"mqtt:\\/\\/bob:«hush!»@broker"}',
    "mqtt://bob@x.de:«hush!»@broker",
    f"mqtt://{'b' * 200}:«{'x' * 600}»@broker",
    "mqtt://bob:«a://b»@broker",
    '{shutdown,{bad_password,<<"«hush!»">>}}',
    '#{password => <<"«hush!»">>}',
    # numbers that are no counters
    '{"passwords":«1234»}',
    '{"max_tokens":«12345678»}',
    '{"max_tokens":"«1234»"}',
    '{"pass":«1023»}',
    '{"pass":"«1»","fail":1}',
    # doubtful names
    'auth: "pin"\npin: «1234»',
    '{"auth":{"n":"pin","pin":«1234»}}',
    "auth=«x-pin: 1234»",
    '{"pin":"«1234»"}',
    '{"pin":«1234»}',
    '{"auth":"«Zq99a8f3»"}',
    '{"auth":"«WPA2hush»"}',
    "user,pin\nbob,«73915501»",
    "user,auth\nbob,«Zq99a8f3»",
    # comments and escapes in names, and what else stands between a name and its quotation mark
    '{password/*c*/:"«hush!»"}',
    '{"password" /* c */ : /* d */ "«hush!»"}',
    "{'pass\\x77ord':'«hush!»'}",
    "{'pass\\u{77}ord':'«hush!»'}",
    '{"password ":"«hush!»"}',
    '{"password:":"«hush!»"}',
    '{"password[]":"«hush!»"}',
    "token[a][b]=«hush!»&b=2",
    # pairs on one line and on several
    "name=password&value=«hush!»",
    "value=«hush!»&name=password&b=2",
    "name=password;type=x;value=«hush!»",
    '{"a":1}\n{2} name=password;value=«hush!»',
    "name: password, value: «hush!»",
    "name: password\na: 1\nb: 2\nvalue: «hush!»\nc: 3",
    "<name>password</name><type>x</type><value>«hush!»</value><a>b</a>",
    "<name>password</name><value><string>«hush!»</string></value>",
    '<u x:password="«hush!»"/><a>b</a>',
    "<ns:password>«hush!»</ns:password><a>b</a>",
    # connection strings
    "Server=h;Password=«a b c»;X=1",
    "Server=h;Password=«a b c»",
    'Server=h;Password="«a""b;c»";X=1',
    "PWD={«a}}b»};X=1",
    "Server=h;PWD={«a;}}b»};X=1",
    '{"s":"Server=h;Password=«a b»","x":"y"}',
    # terms
    '#{<<"password">> => <<"«hush!»">>}',
    '#{<<\\"password\\">> => <<\\"«hush!»\\">>}',
    '#{<<"password">> => "«hush!»", a => "b"}',
    '[{password,"«hush!»"},{a,"b"}]',
    "{'wifi-password', \"«hush!»\"}",
    # arguments
    '["-u","bob","-P","«hush!»"]',
    '["tool","--token","«hush!»","--port","1"]',
    # what is beside a type
    '{"password":{"type":"string","default":"«hush!»"}}',
]
SHOWN = [
    "",
    "21.5",
    '{"temperature":21.5,"unit":"C"}',
    '{"tokens":12,"token":null,"secret":true,"password":"","pwd":{}}',
    '{"publicKey":"a","tokenCount":"7","keyboard":"us","pinMode":"OUTPUT","signal":-67,"design":"x"}',
    '{"pin":13,"auth":"none"}',
    '{"pin":"GPIO13","auth":"wpa2"}',
    "the secret of a good password is its length",
    "password",
    "password: \nuser: bob",
    "2026-01-01 invalid token: expired",
    "<password/>",
    "</password>a",
    "<password></password>",
    "a,b\npassword,c",
    # small numbers and words for no value, without quotes
    "time,pass,fail\n1,2,3",
    "sensor,sig,bat\na,-71,3.3",
    "pass: 12\nfail: 0\n",
    "password:\n  changed: true\n",
    '{"name":"token","value":3}',
    "sig=1.2",
    "password = null",
    "<token>12</token>",
    # counters
    '{"prompt_tokens":1234,"max_tokens":4096,"total_tokens":1234567}',
    '{"pass":1023,"fail":12}',
    # no notations
    "mqtt -p 8883 -t a",
    "Hello, this is the password\nof, somebody",
    "mqtt://broker:1883 a@b",
    "http://a:80/,b@c",
    "temperature,pin\n21,4",
    "ls -p a",
    "http://host:1883/a@b",
    "50 % of all passengers",
    # schemas, lists of names, contacts, methods, ratios
    '{"password":{"type":"string","minLength":8}}',
    '{"columns":["token","ts"],"rows":[["abc12345",1]]}',
    '{"pin":"GPIO_NUM_12","led_pin":"GPIO0012"}',
    '{"auth":"WPA2-Enterprise"}',
    '{"auth":["WPA2WPA3","OAUTH2.0","PEAPv1/MSCHAPv2","SASL1.0-PLAIN","SCRAM-SHA-256","802.1x-EAP"]}',
    '{"sig":99.99}',
    # other pairs
    "- name: token\n- value: hush1x",
    "name: token\nname: a\nvalue: hush1x",
    "name: token\n\nvalue: hush1x",
    "user: token\nstate: on\ndata: 21.55",
    "see https://a/b // c\nd",
]


def marked(text: str, *, is_prose: bool = False) -> str:
    plain = text.replace("«", "").replace("»", "")
    parts, at = [], 0
    for start, end in joined(named_values(plain, is_prose=is_prose)):
        parts += [plain[at:start], "«", plain[start:end], "»"]
        at = end
    return "".join([*parts, plain[at:]])


@pytest.mark.parametrize("text", HIDDEN)
def test_values_of_secrets(text: str) -> None:
    assert marked(text) == text
    assert marked(f"\x00\x7f{text}") == f"\x00\x7f{text}"


def test_a_password_may_hold_the_sign_that_ends_it() -> None:
    assert marked("mqtt://bob:«a@b»@broker") == "mqtt://bob:«a@b»@broker"


@pytest.mark.parametrize("text", SHOWN)
def test_what_is_no_value_of_a_secret(text: str) -> None:
    assert marked(text) == text


@pytest.mark.parametrize("text", HIDDEN)
def test_a_text_that_was_cut_shows_nothing_of_the_value(text: str) -> None:
    """As the beginning of a long payload: of the first value, what is left is hidden, if its name stands before it."""
    begun, _, rest = text.partition("«")
    value = rest.partition("»")[0]
    if named_values(f"{begun}{value[:-1]}"):
        assert marked(f"{begun}{value[:-1]}") == f"{begun}«{value[:-1]}»"
    else:
        assert "://" in text or len(value) <= MIN_DOUBTFUL or begun.endswith('value":"') or "value=" in begun


@pytest.mark.parametrize(
    "text",
    [
        "invalid token: expired",
        "password: too short",
        "token: a1",
        "password: «a1b2c3»",
        "password = «hunter2» is wrong",
        "password=«hunter2», user=bob",
        "f/password=«hunter2/x»",
        "use password «»is wrong".replace("«»", ""),
        "bad password '«hush!»' of bob",
        'token "«a1»": expired',
        "the parameter 'password' is wrong, 'user' too",
        "password 'too short'",
        "a/pass=1",
        "a%3Fpassword%3D«hunter2»",
        '{bad_password,<<"«hush!»">>}',
    ],
)
def test_texts_that_are_told_are_prose(text: str) -> None:
    assert marked(text, is_prose=True) == text


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        (f'{{"password":{"1" * MIN_DIGITS}}}', True),
        (f'{{"password":{"1" * (MIN_DIGITS - 1)}}}', False),
        (f"the password is a{'1' * (MIN_SPOKEN - 1)}", True),
        (f"the password is a{'1' * (MIN_SPOKEN - 2)}", False),
        (f'{{"auth":"a{"1" * (MIN_DOUBTFUL - 1)}"}}', True),
        (f'{{"auth":"a{"1" * (MIN_DOUBTFUL - 2)}"}}', False),
    ],
)
def test_how_short_a_value_may_be(text: str, hidden: bool) -> None:
    assert bool(named_values(text)) is hidden
