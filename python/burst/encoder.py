"""Documents to tokens and loss weights, by the tokenizer of a Hugging Face folder."""
import functools
import pathlib

from . import chats, records
from .command import Wrong
from .documents import json_of, text_of


def text_file(path):
    """A FIFO would be waited for, and a device may have no end."""
    if path.exists() and not path.is_file():
        raise Wrong(f"{path}: not a regular file")
    return text_of(path, path.read_bytes())


def json_object(path):
    found = json_of(path, text_file(path)) if path.exists() else {}
    if not isinstance(found, dict):
        raise Wrong(f"{path}: expected a JSON object")
    return found


class Files:
    """Those of a tokenizer that are read."""

    def __init__(self, given):
        folder = pathlib.Path(given)
        self.tokenizer = folder / "tokenizer.json" if folder.is_dir() else folder
        self.config, self.template = (self.tokenizer.parent / name for name in ("tokenizer_config.json", "chat_template.jinja"))

    def all(self):
        return [self.tokenizer, self.config, self.template]


def content_of(token):
    return token.get("content") if isinstance(token, dict) else token


class Encoder:
    """args: options of the command line, which other processes get too."""

    def __init__(self, args):
        import tokenizers
        self.args, self.files = args, Files(args.tokenizer)
        self.config = json_object(self.files.config)
        try:
            self.tokenizer = tokenizers.Tokenizer.from_str(text_file(self.files.tokenizer))
        except (OSError, Wrong):
            raise
        except Exception as error:  # the library has no class of its own for it
            raise Wrong(f"{self.files.tokenizer}: {error}") from None
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.add_declared(tokenizers.AddedToken)
        self.special = {name: content_of(token) for name, token in self.config.items()
                        if name.endswith("_token") and isinstance(content_of(token), str)}
        self.given = records.given_reading(args)
        self.end = self.end_token()
        self.width = 2 if max(self.tokenizer.get_vocab().values(), default=0) < 1 << 16 else 4  # ids may have gaps

    def add_declared(self, added):
        """Tokens that tokenizer_config.json has beside those of tokenizer.json, or with other properties."""
        declared = self.config.get("added_tokens_decoder") or {}
        names = ("single_word", "lstrip", "rstrip", "normalized", "special")
        try:
            tokens = sorted((int(i), added(token["content"], **{name: token[name] for name in names if name in token}))
                            for i, token in declared.items())
        except (AttributeError, KeyError, TypeError, ValueError):
            raise Wrong(f"{self.files.config}: 'added_tokens_decoder' must be an object of tokens by their ids") from None
        for i, token in tokens:
            known = self.tokenizer.token_to_id(token.content) is not None
            self.tokenizer.add_tokens([token])
            if not known and self.tokenizer.token_to_id(token.content) != i:
                raise Wrong(f"{self.files.config}: the token '{token.content}' is declared as {i}, but the next id of {self.files.tokenizer} is "
                            f"{self.tokenizer.token_to_id(token.content)}")

    def end_token(self):
        if self.args.no_eos:
            return None
        name = self.args.eos or self.special.get("eos_token")
        if name is None:
            raise Wrong(f"{self.args.tokenizer} names no eos_token; give one with --eos TOKEN, or use --no-eos")
        found = self.tokenizer.token_to_id(name)
        if found is None:
            raise Wrong(f"the tokenizer has no token '{name}'")
        return found

    def encode(self, place, document):
        """Ids, and the loss weight of each; None: all 1."""
        if isinstance(document, str):
            return self.of_text(place, document)
        record = {name: value for name, value in document.items() if name not in self.args.ignore}
        reading = records.reading_of(place, record, self.given)
        records.check_rest(place, record, reading)
        if reading.kind == "chat":
            return self.of_chat(place, chats.Chat(place, record, reading, self.args.ignore))
        if reading.kind == "prompt":
            return self.of_prompt(place, *records.prompt_and_answer(place, record, reading))
        (name,) = reading.names
        return self.of_text(place, records.checked_text(place, name, record[name]))

    def tokens(self, place, text, tokenizer=None, special=True):
        try:
            return (tokenizer or self.tokenizer).encode(text, add_special_tokens=special)
        except Exception as error:  # of any class: for example where a word is unknown, and no token stands for those
            raise Wrong(f"{place}: the tokenizer cannot encode the text: {error}") from None

    def ended(self, ids):
        return ids if self.end is None or (ids and ids[-1] == self.end) else ids + [self.end]

    def of_text(self, place, text):
        return (self.ended(self.tokens(place, text).ids) if text else []), None

    def of_prompt(self, place, prompt, answer):
        """Each by itself, as a model that answers meets them."""
        begin = self.tokens(place, prompt)
        ids, special = begin.ids, begin.special_tokens_mask
        while ids and special[len(ids) - 1] and len(ids) > 1:
            ids = ids[:-1]  # what ends a text does not end a prompt
        rest = self.ended(self.tokens(place, answer, special=False).ids)
        return ids + rest, [0] * len(ids) + [1] * len(rest)

    def of_chat(self, place, chat):
        whole, spans = chats.rendered(self.template_for(chat), chat)
        found = self.tokens(place, whole, self.rendered, False)
        weights, at = [], 0
        for begin, end in found.offsets:  # as transformers has it: a token counts where any of its characters does
            while at < len(spans) and begin >= spans[at][1]:
                at += 1
            weights.append(int(at < len(spans) and max(begin + 1, end) > spans[at][0]))
        return found.ids, weights

    @functools.cached_property
    def rendered(self):
        """The tokenizer of rendered chats: a post-processor may cut blanks off the characters of a token."""
        tokenizer = type(self.tokenizer).from_str(self.tokenizer.to_str())
        tokenizer.post_processor = None
        return tokenizer

    def template_for(self, chat):
        """As transformers takes one of several: `tool_use` where there are tools."""
        return self.templates.get("tool_use" if chat.fields["tools"] else "default") or self.templates["default"]

    @functools.cached_property
    def templates(self):
        from_file = self.files.template.exists()
        text = text_file(self.files.template) if from_file else self.config.get("chat_template")
        named = {one.get("name"): one.get("template") for one in text if isinstance(one, dict)} if isinstance(text, list) else {"default": text}
        named = {name: of for name, of in named.items() if isinstance(of, str) and of}
        if "default" not in named:
            raise Wrong(f"{self.args.tokenizer} has no chat template (chat_template.jinja, or chat_template of tokenizer_config.json)")
        special = {"bos_token": "", "eos_token": "", "pad_token": "", "unk_token": "", **self.special}
        place = self.files.template if from_file else self.files.config
        return {name: chats.Template(place, of, special) for name, of in named.items()}
