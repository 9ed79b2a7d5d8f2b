"""What the fields of a record mean: a table of those that are known. Any other field is metadata and left out.

A known field is used or refused, unless it is empty or the user names it with --ignore.
"""
from typing import NamedTuple

from .command import Wrong
from .documents import kind_of

CHAT = ("messages", "conversations")
PROMPT = ("prompt", "instruction", "question")
ANSWER = ("answer", "completion", "response", "output")
TEXT = ("text", "content")
SYSTEM = ("system", "system_prompt")  # before a prompt; or the first message
MORE = ("input", "context")           # after a prompt, as Alpaca and Dolly have it
TEMPLATE = ("tools", "documents", "chat_template_kwargs")

AS_CHAT = "write all turns as `messages`"
AS_PROMPT = "make it part of the prompt"
AS_ANSWER = "write the preferred answer as `answer`, or as a message"
AS_LOSS = "what counts in the loss is said by `prompt` and `answer`, or by a message's `weight`"
NO_MEDIA = "only text is read"
REFUSED = (  # names, the kinds of record whose meaning they change, what would work
    (("history",), "chat prompt", AS_CHAT),
    (("functions",), "chat prompt", "write `tools`"),
    (("tools", "documents"), "prompt", AS_CHAT),
    (("query", "passage", "choices", "options"), "prompt", AS_PROMPT),
    (("chosen", "rejected", "kto_tag"), "chat prompt text", AS_ANSWER),
    (("label",), "chat prompt", AS_ANSWER),  # of KTO: true or false
    (("loss_mask", "loss_weight", "loss_weights", "assistant_mask", "assistant_masks", "completion_mask"), "chat prompt text", AS_LOSS),
    (("weight", "sample_weight"), "chat prompt", "write files by weight and give each a share (`data FILE share`)"),
    (("image", "images", "video", "videos", "audio", "audios"), "chat prompt text", NO_MEDIA),
)
REFUSED_BY_KIND = {kind: {name: advice for names, kinds, advice in REFUSED if kind in kinds.split() for name in names}
                   for kind in ("chat", "prompt", "text")}
KNOWN = {*CHAT, *PROMPT, *ANSWER, *TEXT, *SYSTEM, *MORE, *TEMPLATE, *(name for names, _, _ in REFUSED for name in names)}


class Reading(NamedTuple):
    """How a record is read: as a text or a chat of one field, or as a prompt and its answer."""
    kind: str
    names: tuple

    def option(self):
        options = ("prompt", "answer") if self.kind == "prompt" else (self.kind,)
        return " ".join(f"--{option} {name}" for option, name in zip(options, self.names))


def is_empty(value):
    return value is None or (isinstance(value, (str, list, dict)) and not value)


def checked_text(place, name, value):
    if not isinstance(value, str):
        raise Wrong(f"{place}: '{name}' is {kind_of(value)}, expected a text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Wrong(f"{place}: character {error.start + 1} of '{name}' is half of a surrogate pair, which is no text") from None
    return value


def given_reading(args):
    """The one that options name; None: the record's fields tell."""
    for kind, names in (("text", (args.text,)), ("chat", (args.chat,)), ("prompt", (args.prompt, args.answer))):
        if all(names):
            return Reading(kind, names)
    return None


def readings_of(there):
    """All of those whose fields are there."""
    return [*(Reading("chat", (name,)) for name in CHAT if there(name)),
            *(Reading("prompt", (p, a)) for p in PROMPT if there(p) for a in ANSWER if there(a)),
            *(Reading("text", (name,)) for name in TEXT if there(name))]


def reading_of(place, record, given):
    names = ", ".join(sorted(record))
    if given:
        for name in given.names:
            if name not in record:
                raise Wrong(f"{place}: there is no field '{name}'; the record has {names or 'none'}")
        return given
    found = readings_of(lambda name: not is_empty(record.get(name))) or readings_of(record.__contains__)[:1]
    if len(found) == 1:
        return found[0]
    if found:
        raise Wrong(f"{place}: the record can be read in {len(found)} ways; choose one with {' or with '.join(r.option() for r in found)}")
    raise Wrong(f"{place}: cannot tell what of {names or 'an empty record'} is the text; use --text FIELD, --prompt FIELD with --answer FIELD, "
                "or --chat FIELD")


def check_rest(place, record, reading):
    """No field that is left out changes what the record means."""
    refused = REFUSED_BY_KIND[reading.kind]
    for name, value in record.items():
        if name in refused and name not in reading.names and not is_empty(value) and (name != "label" or isinstance(value, bool)):
            raise Wrong(f"{place}: '{name}' would change what the record means and is not read: {refused[name]}; or leave it out "
                        f"with --ignore {name}")


def there(record, names, reading):
    return [name for name in names if name not in reading.names and not is_empty(record.get(name))]


def prompt_and_answer(place, record, reading):
    """What comes before an answer is joined by line ends."""
    prompt, answer = (checked_text(place, name, record[name]) for name in reading.names)
    before, after = ([checked_text(place, name, record[name]) for name in there(record, names, reading)] for names in (SYSTEM, MORE))
    return "\n".join(part for part in (*before, prompt, *after) if part), answer
