"""Spark looks for data sources in modules of this form of name and registers them by itself."""

from mqttscope.spark.source import MqttCapture as DefaultSource

__all__ = ["DefaultSource"]
