"""Handles administrative requests about topics and consumer groups. Source: AdminBrokerProcessor (5.5.0)."""

from typing import Any

from msgspec.structs import replace

from mqtool.errors import FormatError
from mqtool.formats import file_names
from mqtool.formats.config_files import FILTER_TYPES, MESSAGE_TYPE, DataVersion, GroupConfig, TopicConfig
from mqtool.formats.config_json import bean_of, document_of
from mqtool.formats.service_records import MAX_QUEUES
from mqtool.formats.topics import LITE_PREFIX, is_lmq, is_system_topic, pop_retry_topic
from mqtool.protocol.command import Command, RequestCode, ResponseCode
from mqtool.server.broker import attributes
from mqtool.server.broker.answers import RefusalError, body, body_of, flag, integer, number, ok, text
from mqtool.server.broker.attributes import GROUP_ATTRIBUTES, MIXED, TOPIC_ATTRIBUTES, alter_attributes, parse_changes
from mqtool.server.broker.broker import RequestProcessor, handles
from mqtool.server.broker.topics import default_group
from mqtool.server.net.peer import Peer


class TopicAdmin(RequestProcessor):
    """Creates, changes, lists and deletes topics and consumer groups."""

    @handles(RequestCode.UPDATE_AND_CREATE_TOPIC)
    async def update(self, command: Command, _peer: Peer) -> Command:
        topic = text(command, "topic")
        changed = self._changed_topic(
            TopicConfig(
                topic,
                integer(command, "readQueueNums"),
                integer(command, "writeQueueNums"),
                integer(command, "perm"),
                command.fields.get("topicFilterType") or FILTER_TYPES[0],
                integer(command, "topicSysFlag", 0),
                flag(command, "order"),
                parse_changes(command.fields.get("attributes") or "")
                if attributes.topic_problem(topic) is None
                else {},
            )
        )
        self._put_topic(changed)
        await self._broker.persister.saved()
        await self._broker.wait_registered()
        return ok(command)

    @handles(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST)
    async def update_list(self, command: Command, _peer: Peer) -> Command:
        requested = [_bean(TopicConfig, document) for document in body_of(command).get("topicConfigList") or []]
        for changed in [self._changed_topic(config) for config in requested]:
            self._put_topic(changed)
        await self._broker.persister.saved()
        await self._broker.wait_registered()
        return ok(command)

    def _changed_topic(self, config: TopicConfig) -> TopicConfig:
        """Returns the configuration that a topic gets, whose attributes a request states as changes."""
        self._broker.check_open()
        problem = attributes.topic_problem(config.topic_name)
        if problem is None and is_system_topic(config.topic_name):
            problem = f"The topic[{config.topic_name}] is conflict with system topic."
        counts = config.read_queue_nums, config.write_queue_nums
        if problem is None and not (any(counts) and all(0 <= count <= MAX_QUEUES for count in counts)):
            problem = (
                f"The topic[{config.topic_name}] has {counts[0]} queues to read and {counts[1]} to write: "
                f"expected 0 to {MAX_QUEUES}, not both 0"
            )
        if problem is not None:
            raise RefusalError(ResponseCode.INVALID_PARAMETER, problem)
        kind = config.topic_filter_type
        if kind not in FILTER_TYPES:
            remark = f"topicFilterType: expected {' or '.join(FILTER_TYPES)}, found {kind[:40]!r}"
            raise RefusalError(ResponseCode.SYSTEM_ERROR, remark)
        self._check_readable(file_names.TOPICS, "topicConfigTable", config)
        changes = config.attributes or {}
        if changes.get(f"+{MESSAGE_TYPE}") == MIXED and not self._broker.settings.flag("enableMixedMessageType"):
            raise RefusalError(ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported.")
        existing = self._broker.topics.table.get(config.topic_name)
        current = None if existing is None else existing.attributes or {}
        return replace(config, attributes=alter_attributes(TOPIC_ATTRIBUTES, current, changes))

    def _check_readable(self, file: str, table: str, config: TopicConfig | GroupConfig) -> None:
        """Raises RefusalError if a broker could not read a member of a configuration in its file, and not start."""
        configs = self._broker.persister.configs
        for member, value in document_of(config).items():
            if not configs.accepts(file, {table: {"": {member: value}}}):
                remark = f"{member}: expected a value that a broker reads from {file}, found {str(value)[:40]!r}"
                raise RefusalError(ResponseCode.SYSTEM_ERROR, remark)

    def _put_topic(self, config: TopicConfig) -> None:
        if self._broker.topics.get(config.topic_name) != config:
            self._broker.topics.put(config)

    @handles(RequestCode.DELETE_TOPIC_IN_BROKER)
    async def delete(self, command: Command, _peer: Peer) -> Command:
        """DELETE_TOPIC_IN_BROKER: deletes the topic and its POP retry topics, with their queues."""
        broker, topic = self._broker, text(command, "topic", "")
        broker.check_open()
        if not topic.strip():
            raise RefusalError(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        if is_system_topic(topic):
            raise RefusalError(ResponseCode.INVALID_PARAMETER, f"The topic[{topic}] is conflict with system topic.")
        retries = [
            pop_retry_topic(group, topic, second_form=form)
            for group in broker.offsets.groups_of(topic)
            for form in (False, True)
        ]
        light = [name for name, _ in broker.messages.queues() if name.startswith(f"{LITE_PREFIX}{topic}$")]
        for name in (topic, *retries, *light):
            broker.delete_topic(name)
        await broker.persister.saved()
        return ok(command)

    @handles(RequestCode.GET_TOPIC_CONFIG)
    def config(self, command: Command, _peer: Peer) -> Command:
        topic = text(command, "topic")
        config = self._broker.existing_topic(topic, f"No topic in this broker. topic: {topic}")
        return ok(command, data=body(document_of(config)))

    @handles(RequestCode.GET_ALL_TOPIC_CONFIG)
    def all_topics(self, command: Command, _peer: Peer) -> Command:
        """GET_ALL_TOPIC_CONFIG, in pages if the request asks for them."""
        table, static = self._broker.topics.table, self._broker.static_topics
        shown, total = _page(command, table, "topicSeq", "maxTopicNum")
        document = {
            "dataVersion": version_body(self._broker.topics.data_version),
            "mappingDataVersion": version_body(static.data_version),
            "topicConfigTable": {name: document_of(table[name]) for name in shown},
            "topicQueueMappingDetailMap": {
                name: mapping for name, mapping in static.mappings.items() if len(shown) == total or name in shown
            },
            "topicQueueMappingInfoMap": {},
        }
        return ok(command, {"totalTopicNum": str(total)}, body(document))

    @handles(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    def system_topics(self, command: Command, _peer: Peer) -> Command:
        cluster, name = (self._broker.settings.text(key) for key in ("brokerClusterName", "brokerName"))
        topics = sorted(topic for topic in self._broker.topics.table if is_system_topic(topic))
        return ok(command, data=body({"topicList": [*topics, cluster, name]}))

    @handles(RequestCode.CLEAN_UNUSED_TOPIC)
    async def clean_unused(self, command: Command, _peer: Peer) -> Command:
        """CLEAN_UNUSED_TOPIC: deletes the queues of topics that are not in the topic table, which LMQs never are.

        Source: DefaultMessageStore.cleanUnusedTopic.
        """
        known = self._broker.topics.table
        for topic in {topic for topic, _ in self._broker.messages.queues()}:
            if topic not in known and not is_system_topic(topic) and not is_lmq(topic):
                self._broker.engine.delete_topic(topic)
        return ok(command)

    @handles(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
    async def update_group(self, command: Command, _peer: Peer) -> Command:
        self._broker.check_open()
        self._broker.groups.put(self._changed_group(body_of(command)))
        await self._broker.persister.saved()
        return ok(command)

    @handles(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST)
    async def update_group_list(self, command: Command, _peer: Peer) -> Command:
        self._broker.check_open()
        for changed in [self._changed_group(document) for document in body_of(command).get("groupConfigList") or []]:
            self._broker.groups.put(changed)
        await self._broker.persister.saved()
        return ok(command)

    def _changed_group(self, document: dict[str, Any]) -> GroupConfig:
        """Returns the configuration that a group gets, whose attributes a request states as changes."""
        known = {member: value for member, value in document.items() if value is not None}
        name = str(known.get("groupName", ""))
        problem = attributes.group_problem(name)
        if problem is not None:
            raise RefusalError(ResponseCode.INVALID_PARAMETER, problem)
        config: GroupConfig = _bean(GroupConfig, {**document_of(default_group(name)), **known, "groupName": name})
        self._check_readable(file_names.SUBSCRIPTION_GROUPS, "subscriptionGroupTable", config)
        if config.retry_queue_nums > MAX_QUEUES:
            remark = f"retryQueueNums {config.retry_queue_nums}: expected at most {MAX_QUEUES}"
            raise RefusalError(ResponseCode.INVALID_PARAMETER, remark)
        existing = self._broker.groups.table.get(name)
        current = None if existing is None else existing.attributes or {}
        return replace(config, attributes=alter_attributes(GROUP_ATTRIBUTES, current, config.attributes or {}))

    @handles(RequestCode.DELETE_SUBSCRIPTIONGROUP)
    async def delete_group(self, command: Command, _peer: Peer) -> Command:
        self._broker.check_open()
        group = text(command, "groupName")
        self._broker.groups.delete(group)
        if flag(command, "cleanOffset") or flag(command, "removeOffset"):
            self._broker.offsets.forget_group(group)
        await self._broker.persister.saved()
        return ok(command)

    @handles(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG)
    def group_config(self, command: Command, _peer: Peer) -> Command:
        group = text(command, "group")
        config = self._broker.existing_group(group, f"No group in this broker. group: {group}")
        return ok(command, data=body(document_of(config)))

    @handles(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    def all_groups(self, command: Command, _peer: Peer) -> Command:
        """GET_ALL_SUBSCRIPTIONGROUP_CONFIG, in pages if the request asks for them."""
        table, forbidden = self._broker.groups.table, self._broker.groups.forbidden
        shown, total = _page(command, table, "groupSeq", "maxGroupNum")
        document = {
            "dataVersion": version_body(self._broker.groups.data_version),
            "forbiddenTable": {
                name: topics for name, topics in forbidden.items() if len(shown) == total or name in shown
            },
            "subscriptionGroupTable": {name: document_of(table[name]) for name in shown},
        }
        return ok(command, {"totalGroupNum": str(total)}, body(document))

    @handles(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN)
    async def group_forbidden(self, command: Command, _peer: Peer) -> Command:
        """UPDATE_AND_GET_GROUP_FORBIDDEN: returns whether a group may pull a topic, after setting it if requested."""
        self._broker.check_release_5(command)
        group, topic = text(command, "group"), text(command, "topic")
        if "readable" in command.fields:
            self._broker.check_open()
            self._broker.groups.forbid(group, topic, forbidden=not flag(command, "readable"))
            await self._broker.persister.saved()
        is_readable = not self._broker.groups.is_forbidden(group, topic)
        return ok(command, data=body({"group": group, "readable": is_readable, "topic": topic}), remark="")


def version_body(version: DataVersion) -> dict[str, Any]:
    """Returns a data version in the form of JSON bodies."""
    return {"counter": version.counter, "stateVersion": version.state_version or 0, "timestamp": version.timestamp}


def _page(command: Command, table: dict[str, Any], first: str, size_field: str) -> tuple[list[str], int]:
    """Returns the names on the page that a request selects, and the number of all names."""
    keys = list(table)
    if first not in command.fields:
        return keys, len(keys)
    start = max(0, number(command, first, 0))
    return keys[start : start + max(1, number(command, size_field, len(keys) or 1))], len(keys)


def _bean(kind: type[Any], document: Any) -> Any:
    try:
        return bean_of(kind, document, "body")
    except FormatError as error:
        raise RefusalError(ResponseCode.INVALID_PARAMETER, str(error)) from error
