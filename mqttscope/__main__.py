"""``python -m mqttscope``."""

from mqttscope.cli import run

if __name__ == "__main__":
    run()
