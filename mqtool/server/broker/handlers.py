"""Which processor answers which request code, and how refusals become answers."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from mqtool.errors import MqtoolError
from mqtool.protocol.codes import RequestCode, ResponseCode
from mqtool.protocol.command import Command
from mqtool.server.broker.answers import RefusalError
from mqtool.server.net.peer import Peer

if TYPE_CHECKING:
    from mqtool.server.broker.broker import Broker

_LOG = logging.getLogger(__name__)

_Handler = Callable[[Command, Peer], "Command | Awaitable[Command | None] | None"]


def table(broker: "Broker") -> Mapping[int, _Handler]:
    """Returns the handlers of a broker; a code that is missing here is answered as not supported."""
    return {code: _guarded(handler) for code, handler in {**_clients(broker), **_admin(broker)}.items()}


def _guarded(handler: _Handler) -> _Handler:
    """Returns a handler whose answers are whole: errors of ours have become some."""

    def handle(command: Command, peer: Peer) -> "Command | Awaitable[Command | None] | None":
        try:
            answer = handler(command, peer)
        except MqtoolError as error:
            return _refused(command, error)
        if answer is None or isinstance(answer, Command):
            return answer
        return _later(command, answer)

    return handle


async def _later(command: Command, answer: Awaitable[Command | None]) -> Command | None:
    try:
        return await answer
    except MqtoolError as error:
        return _refused(command, error)
    except OSError as error:
        return command.reply(ResponseCode.SYSTEM_ERROR, str(error))


def _refused(command: Command, error: MqtoolError) -> Command:
    if isinstance(error, RefusalError):
        return command.reply(error.code, error.remark)
    _LOG.warning("request failed code=%d error=%s", command.code, error)
    return command.reply(ResponseCode.SYSTEM_ERROR, str(error))


def _clients(broker: "Broker") -> dict[int, _Handler]:
    """Returns what producers and consumers ask."""
    consumers, clients = broker.consumer_requests, broker.client_requests
    return {
        RequestCode.SEND_MESSAGE: broker.sends.send,
        RequestCode.SEND_MESSAGE_V2: broker.sends.send,
        RequestCode.SEND_BATCH_MESSAGE: broker.sends.send,
        RequestCode.SEND_REPLY_MESSAGE: broker.replies.reply,
        RequestCode.SEND_REPLY_MESSAGE_V2: broker.replies.reply,
        RequestCode.CONSUMER_SEND_MSG_BACK: broker.send_backs.send_back,
        RequestCode.END_TRANSACTION: broker.transactions.end,
        RequestCode.RECALL_MESSAGE: broker.timer.recall,
        RequestCode.PULL_MESSAGE: broker.pulls.pull,
        RequestCode.LITE_PULL_MESSAGE: broker.pulls.pull,
        RequestCode.QUERY_MESSAGE: broker.queries.query,
        RequestCode.VIEW_MESSAGE_BY_ID: broker.queries.view,
        RequestCode.HEART_BEAT: clients.heartbeat,
        RequestCode.UNREGISTER_CLIENT: clients.unregister,
        RequestCode.CHECK_CLIENT_CONFIG: clients.check,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: consumers.members,
        RequestCode.QUERY_CONSUMER_OFFSET: consumers.query_offset,
        RequestCode.UPDATE_CONSUMER_OFFSET: consumers.update_offset,
        RequestCode.LOCK_BATCH_MQ: consumers.lock,
        RequestCode.UNLOCK_BATCH_MQ: consumers.unlock,
        RequestCode.GET_MAX_OFFSET: consumers.max_offset,
        RequestCode.GET_MIN_OFFSET: consumers.min_offset,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: consumers.search_offset,
        RequestCode.GET_EARLIEST_MSG_STORETIME: consumers.earliest_time,
        RequestCode.QUERY_ASSIGNMENT: broker.assignments.query,
        RequestCode.SET_MESSAGE_REQUEST_MODE: broker.assignments.set_mode,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: broker.assignments.modes,
        RequestCode.POP_MESSAGE: broker.pops.pop,
        RequestCode.PEEK_MESSAGE: broker.pops.peek,
        RequestCode.NOTIFICATION: broker.pops.notify,
        RequestCode.POLLING_INFO: broker.pops.polling_info,
        RequestCode.ACK_MESSAGE: broker.pops.ack,
        RequestCode.BATCH_ACK_MESSAGE: broker.pops.batch_ack,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME: broker.pops.change_invisible,
    }


def _admin(broker: "Broker") -> dict[int, _Handler]:
    """Returns what tools and other brokers ask."""
    topics, consumers, admin = broker.topic_admin, broker.consumer_admin, broker.admin
    return {
        RequestCode.UPDATE_AND_CREATE_TOPIC: topics.update,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: topics.update_list,
        RequestCode.DELETE_TOPIC_IN_BROKER: topics.delete,
        RequestCode.GET_TOPIC_CONFIG: topics.config,
        RequestCode.GET_ALL_TOPIC_CONFIG: topics.all_topics,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: topics.system_topics,
        RequestCode.CLEAN_UNUSED_TOPIC: topics.clean_unused,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: topics.update_group,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: topics.update_group_list,
        RequestCode.DELETE_SUBSCRIPTIONGROUP: topics.delete_group,
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: topics.group_config,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: topics.all_groups,
        RequestCode.GET_CONSUMER_CONNECTION_LIST: consumers.consumer_connections,
        RequestCode.GET_PRODUCER_CONNECTION_LIST: consumers.producer_connections,
        RequestCode.GET_ALL_PRODUCER_INFO: consumers.all_producers,
        RequestCode.GET_CONSUMER_RUNNING_INFO: consumers.relay,
        RequestCode.CONSUME_MESSAGE_DIRECTLY: consumers.relay,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: consumers.groups_of_topic,
        RequestCode.QUERY_TOPICS_BY_CONSUMER: consumers.topics_of_group,
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: consumers.subscription,
        RequestCode.GET_CONSUME_STATS: consumers.consume_stats,
        RequestCode.GET_BROKER_CONSUME_STATS: consumers.broker_consume_stats,
        RequestCode.QUERY_CONSUME_TIME_SPAN: consumers.time_span,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: consumers.reset_offset,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: consumers.consumer_status,
        RequestCode.CLONE_GROUP_OFFSET: consumers.clone,
        RequestCode.GET_BROKER_CONFIG: admin.config,
        RequestCode.UPDATE_BROKER_CONFIG: admin.update_config,
        RequestCode.GET_BROKER_RUNTIME_INFO: admin.runtime_info,
        RequestCode.GET_TOPIC_STATS_INFO: admin.topic_stats,
        RequestCode.VIEW_BROKER_STATS_DATA: admin.stats_data,
        RequestCode.QUERY_CONSUME_QUEUE: admin.consume_queue,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: admin.clean,
        RequestCode.DELETE_EXPIRED_COMMITLOG: admin.clean,
        RequestCode.GET_ALL_CONSUMER_OFFSET: admin.consumer_offsets,
        RequestCode.GET_ALL_DELAY_OFFSET: admin.delay_offsets,
        RequestCode.GET_BROKER_HA_STATUS: admin.ha_status,
    }
