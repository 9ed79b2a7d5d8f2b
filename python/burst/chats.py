"""Chats: messages of a record, rendered by the tokenizer's chat template, and which characters of that count in the loss.

Every message, tool and field that is read must be found in what the template writes: some templates leave out what they do not know.
"""
import json
import re
import time

from .command import Wrong
from .documents import json_of, kind_of
from .records import SYSTEM, checked_text, is_empty, there

ROLES = {"human": "user", "gpt": "assistant"}  # of ShareGPT
SPEAKERS = ("function_call", "model", "bot", "ai", "chatgpt", "bard", "bing")  # assistants by other names
WEIGHT = ("weight", "train", "trainable", "training", "loss")  # of a message: 1 (true) where it counts in the loss, else 0
REASONING = ("reasoning_content", "thinking", "reasoning")  # one thing
CALLS = "tool_calls"
READ = (CALLS, "name", "function_call", *REASONING)  # by templates, which must not leave them out
REFUSED = {"refusal": "write it as `content`", "audio": "only text is read", "image": "only text is read", "images": "only text is read",
           **dict.fromkeys(("loss_mask", "loss_weight", "loss_scale", "mask", "masked", "train_detail", "training_detail"),
                           "write `weight`, 0 or 1")}


# ---- messages ----

def either(place, message, names):
    found = [name for name in names if message.get(name) is not None]
    if len(found) > 1:
        raise Wrong(f"{place} has both '{found[0]}' and '{found[1]}'")
    return message[found[0]] if found else None


def weight_of(place, message, role):
    """None: it has none."""
    found = [(name, message[name]) for name in WEIGHT if message.get(name) is not None]
    for name, value in found:
        if not isinstance(value, (int, float)) or value not in (0, 1):
            raise Wrong(f"{place}: '{name}' is {value if isinstance(value, (int, float)) else kind_of(value)}, expected 0 or 1")
        if value != found[0][1]:
            raise Wrong(f"{place}: '{found[0][0]}' and '{name}' differ")
        if value and role != "assistant":
            raise Wrong(f"{place}: '{name}' is 1, but only what the assistant says can count in the loss; use --ignore {name}")
    return int(found[0][1]) if found else None


def content_of(place, message):
    content = either(place, message, ("content", "value"))
    if content is not None:
        return {"content": checked_text(place, "content", content)}
    if not any(message.get(name) for name in (CALLS, "function_call")):
        raise Wrong(f"{place} has no `content`")
    return {}


def message_of(place, message, ignore):
    """The message as templates expect it, and its weight."""
    if not isinstance(message, dict):
        raise Wrong(f"{place} is {kind_of(message)}, expected an object with `role` and `content`")
    message = {name: value for name, value in message.items() if value is not None and name not in ignore}
    role = either(place, message, ("role", "from"))
    if not isinstance(role, str):
        raise Wrong(f"{place} has no `role`, or one that is no text")
    role = ROLES.get(role, role)
    if role in SPEAKERS:
        raise Wrong(f"{place}: the role '{role}' would not count in the loss; write `assistant`, with `tool_calls` where it calls a function")
    for name in message:
        if name in REFUSED and not is_empty(message[name]):
            raise Wrong(f"{place}: '{name}' would change what it means and is not read: {REFUSED[name]}; or leave it out with --ignore {name}")
    rest = {name: value for name, value in message.items() if name not in ("from", "value", *WEIGHT)}
    return {**rest, "role": role, **content_of(place, message)}, weight_of(place, message, role)


def with_system(place, messages, record, reading):
    """`system` beside the messages is the first one."""
    for name in there(record, SYSTEM, reading):
        first = {"role": "system", "content": checked_text(place, name, record[name])}
        if messages and messages[0]["role"] in ("system", "developer"):
            if messages[0]["content"] != first["content"]:
                raise Wrong(f"{place}: there is '{name}', and the first message is another one of the role `{messages[0]['role']}`; "
                            f"use --ignore {name}")
            continue
        return [first, *messages]
    return messages


class Chat:
    """messages, weights: of each message, whether it counts; fields: what the template gets beside the messages."""

    def __init__(self, place, record, reading, ignore):
        (name,) = reading.names
        found = record[name]
        if not isinstance(found, list) or not found:
            raise Wrong(f"{place}: '{name}' must be a list of messages with `role` and `content`")
        pairs = [message_of(f"{place}: message {i} of '{name}'", m, ignore) for i, m in enumerate(found, 1)]
        self.place = place
        self.messages = with_system(place, [m for m, _ in pairs], record, reading)
        self.weights = [0] * (len(self.messages) - len(pairs)) + [
            int(m["role"] == "assistant") if weight is None else weight for m, weight in pairs]
        if not any(m["role"] == "assistant" for m in self.messages):
            raise Wrong(f"{place}: '{name}' has no message of the role `assistant`")
        self.fields = {"tools": None, "documents": None, **self.template_fields(record)}

    def template_fields(self, record):
        found = {}
        for name in ("tools", "documents"):
            value = record.get(name)
            if isinstance(value, str) and value.strip():
                value = json_of(f"{self.place}: '{name}'", value)
            if is_empty(value):
                continue
            if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
                raise Wrong(f"{self.place}: '{name}' must be a list of objects, or that as JSON in a text")
            found[name] = value
        more = record.get("chat_template_kwargs")
        if not isinstance(more, (dict, type(None))):
            raise Wrong(f"{self.place}: 'chat_template_kwargs' is {kind_of(more)}, expected an object")
        return {**(more or {}), **found}


# ---- the template ----

MARK = "<burst mark {} 5f0c6b>"  # no text has it
BEGIN, END = MARK.format("begin"), MARK.format("end")


def environment():
    """As transformers has it. With `marking` on, what `{% generation %}` surrounds is between BEGIN and END."""
    try:
        from jinja2 import nodes
        from jinja2.ext import Extension, loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ModuleNotFoundError:
        raise Wrong("chats require jinja2; install it with pip install jinja2") from None

    class Generation(Extension):
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.CallBlock(self.call_method("surround"), [], [], body).set_lineno(line)

        def surround(self, caller):
            return BEGIN + caller() + END if self.environment.marking else caller()

    def fail(message):
        raise ValueError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys, allow_nan=False)

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation])
    made.extend(marking=False)
    made.filters["tojson"] = tojson
    made.globals.update(raise_exception=fail, strftime_now=time.strftime)
    return made


def aliased(message):
    """As transformers has it: templates read reasoning by either of two names."""
    reasoning = next((message[name] for name in REASONING if name in message), None)
    return message if reasoning is None else {"thinking": reasoning, **message, "reasoning_content": reasoning}


class Template:
    """special: the tokenizer's special tokens by name."""

    def __init__(self, place, text, special):
        self.environment = environment()
        try:
            self.template, self.special = self.environment.from_string(text), special
        except Exception as error:  # jinja2's, or Python's for what is nested too deeply
            raise Wrong(f"{place}: the chat template cannot be compiled: {error}") from None
        self.marks = bool(re.search(r"{%[-+]?\s*generation\s*-?%}", text))

    def render(self, messages, fields, ask=False):
        messages = [aliased(message) for message in messages]
        return self.template.render({**self.special, **fields, "messages": messages, "add_generation_prompt": ask})

    def marked(self, messages, fields):
        self.environment.marking = True
        try:
            return self.render(messages, fields)
        finally:
            self.environment.marking = False


# ---- what it leaves out ----

def marked_call(place, call, mark):
    of = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(of, dict) or not isinstance(of.get("name"), str):
        raise Wrong(f"{place}: '{CALLS}' must be a list of calls, each a `function` with a `name`")
    of = {**of, "name": of["name"] + mark}
    return {**call, "function": of} if "function" in call else of


def marked_message(place, message, i):
    """With marks at the end of all that a template writes of it."""
    more = {}
    if message.get("content", "").strip():
        more["content"] = message["content"] + MARK.format(i)
    calls = message.get(CALLS)
    if calls:
        if not isinstance(calls, list):
            raise Wrong(f"{place}: '{CALLS}' of message {i} is {kind_of(calls)}, expected a list")
        more[CALLS] = [marked_call(place, call, MARK.format(f"{i}.{n}")) for n, call in enumerate(calls)]
    return {**message, **more}


def check_messages(template, chat):
    marked = [marked_message(chat.place, message, i) for i, message in enumerate(chat.messages, 1)]
    text = template.render(marked, chat.fields)
    for i, (message, plain) in enumerate(zip(marked, chat.messages), 1):
        if message.get("content") != plain.get("content") and MARK.format(i) not in text:
            raise Wrong(f"{chat.place}: the chat template leaves out the content of message {i}, of the role `{plain['role']}`")
        for n in range(len(message.get(CALLS, ()))):
            if MARK.format(f"{i}.{n}") not in text:
                raise Wrong(f"{chat.place}: the chat template leaves out '{CALLS}' of message {i}; leave them out with --ignore {CALLS}")


def differs(template, messages, fields, whole):
    try:
        return template.render(messages, fields) != whole
    except Exception:  # it reads what is missing
        return True


def check_fields(template, chat, whole):
    for name in READ:
        if name == CALLS or not any(message.get(name) for message in chat.messages):
            continue
        names = REASONING if name in REASONING else (name,)
        without = [{key: value for key, value in message.items() if key not in names} for message in chat.messages]
        if not differs(template, without, chat.fields, whole):
            raise Wrong(f"{chat.place}: the chat template leaves out '{name}' of messages; leave it out with --ignore {name}")
    for name in ("tools", "documents"):
        if chat.fields[name] and not differs(template, chat.messages, {**chat.fields, name: None}, whole):
            raise Wrong(f"{chat.place}: the chat template leaves out '{name}'; leave it out with --ignore {name}")


# ---- what counts in the loss ----

def changed(chat, i):
    return Wrong(f"{chat.place}: the chat template writes the first {i} messages in another way where more follow, so that "
                 "answers cannot be told from prompts; end the conversation there, or write `prompt` and `answer`")


def begin_of(template, chat, i, whole):
    """Where the answer of message i begins: after what asks for it, or after the header of an assistant's message."""
    before = chat.messages[:i]
    if before:
        asked = template.render(before, chat.fields, True)
        if whole.startswith(asked) and asked != template.render(before, chat.fields):
            return len(asked)
    header, mark, _ = template.render([*before, {"role": "assistant", "content": BEGIN}], chat.fields).partition(BEGIN)
    if not mark or not whole.startswith(header):
        raise changed(chat, i)
    return len(header)


def end_of(template, chat, i, whole):
    text = template.render(chat.messages[:i + 1], chat.fields) if i + 1 < len(chat.messages) else whole
    if not whole.startswith(text):
        raise changed(chat, i + 1)
    return len(text)


def generated(template, chat, whole):
    """What the template itself says that the assistant generates."""
    plain, spans = "", []
    for part in template.marked(chat.messages, chat.fields).split(BEGIN):
        inside, mark, after = part.partition(END)
        if mark:
            spans.append((len(plain), len(plain) + len(inside)))
        plain += inside + after
    if plain != whole:
        raise Wrong(f"{chat.place}: the chat template changes what `generation` surrounds")
    weights = [w for m, w in zip(chat.messages, chat.weights) if m["role"] == "assistant"]
    if any(weights) and not spans:
        raise Wrong(f"{chat.place}: the chat template has `generation`, but surrounds no answer with it")
    if len(spans) != len(weights) and not all(weights):
        raise Wrong(f"{chat.place}: the chat template has {len(spans)} generations for {len(weights)} answers, so that a weight of 0 has no place")
    return [span for n, span in enumerate(spans) if n >= len(weights) or weights[n]]


def rendered(template, chat):
    """The text of a chat, and the spans of it that count in the loss."""
    try:
        whole = template.render(chat.messages, chat.fields)
        check_messages(template, chat)
        check_fields(template, chat, whole)
        if template.marks:
            return whole, generated(template, chat, whole)
        return whole, [(begin_of(template, chat, i, whole), end_of(template, chat, i, whole))
                       for i, weight in enumerate(chat.weights) if weight]
    except Wrong:
        raise
    except Exception as error:  # whatever a template makes of the messages
        raise Wrong(f"{chat.place}: the chat template fails: {error}") from None
