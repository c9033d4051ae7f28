"""Messages of apache/rocketmq/v2/service.proto."""

from mqtool.protocol.rocketmq_v2 import messages_of

globals().update(messages_of("service"))
