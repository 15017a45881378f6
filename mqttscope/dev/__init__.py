"""For those who work on mqttscope; not part of the installed package."""
