"""The style of the page: light and dark, on screen and paper."""

STYLE = """
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#5b6470;--line:#d7dce2;--page:#fff;--band:#f4f6f8;
--error:#c0392b;--warning:#d99a1c;--info:#6f8fb3;--main:#2f6f9f;--doubt:#fff4dc;--good:#e3f4e6}
@media(prefers-color-scheme:dark){:root{--ink:#e4e8ec;--soft:#9aa5b1;--line:#39424c;--page:#15191e;--band:#1d232a;
--error:#e2695c;--warning:#e0b04c;--info:#7f9cbd;--main:#64a5d6;--doubt:#3a3018;--good:#1c3323}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:68rem;margin:2rem auto;
padding:0 1rem}
h1{margin:0}h2{margin:2.5rem 0 .5rem;border-bottom:1px solid var(--line)}h3{margin:1.5rem 0 .5rem}
.where,.note,.legend{color:var(--soft)}
.amounts{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.5rem}
.amounts li{background:var(--band);border-radius:.4rem;padding:.25rem .7rem}
.doubt,.good{border-radius:.4rem;padding:.6rem .8rem}.doubt{background:var(--doubt)}.good{background:var(--good)}
.table{overflow-x:auto}table{border-collapse:collapse;min-width:50%}
th,td{padding:.2rem .7rem .2rem 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
th{font-weight:600;white-space:nowrap}.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.name{font-family:ui-monospace,monospace;font-size:13px;overflow-wrap:anywhere;max-width:24rem}
.time{white-space:nowrap;font-variant-numeric:tabular-nums}
svg{width:100%;max-width:760px;height:auto;display:block}svg text{font:11px system-ui,sans-serif;fill:var(--soft)}
.grid{stroke:var(--line)}.hit{fill:transparent}
.errors{fill:var(--error);background:var(--error)}.warnings{fill:var(--warning);background:var(--warning)}
.infos{fill:var(--info);background:var(--info)}
.connects,.messages,.range{fill:var(--main)}.mark{fill:var(--page);stroke:var(--main);stroke-width:2}
.legend span{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin:0 .3em 0 .8em}
.legend span:first-child{margin-left:0}
@media print{body{max-width:none}.table{overflow:visible}h2,h3{break-after:avoid}}
"""
