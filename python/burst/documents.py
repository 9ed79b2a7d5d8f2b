"""Documents of an input file: (place, document, bytes read so far), a document being a record or a text."""
import json
import os
import pathlib
import sys

from .command import Wrong

KINDS = {type(None): "null", bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object",
         bytes: "bytes"}
UNREAD = ...  # the value of a column that is not needed


def kind_of(value):
    return KINDS.get(type(value), type(value).__name__)


def lines_of(path):
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            yield f"{path}:{number}", line, file.tell()


def text_of(place, data):
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Wrong(f"{place}: byte {error.start + 1} is not UTF-8") from None


def unique(pairs):
    """An object of JSON, which would keep the last of two fields of one name."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise Wrong(f"there are two fields '{next(name for name in names if names.count(name) > 1)}'")
    return found


def json_of(place, text):
    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if "\n" in text.strip() else ""
        raise Wrong(f"{place}: {error.msg} at {line}column {error.colno}") from None
    except ValueError:
        raise Wrong(f"{place}: a number has more than {sys.get_int_max_str_digits()} digits") from None
    except RecursionError:
        raise Wrong(f"{place}: lists or objects are nested too deeply") from None
    except Wrong as error:
        raise Wrong(f"{place}: {error}") from None


def json_lines(path):
    for place, line, done in lines_of(path):
        if not line.strip():
            continue
        record = json_of(place, text_of(place, line))
        if not isinstance(record, dict):
            raise Wrong(f"{place}: expected a JSON object, found {kind_of(record)}")
        yield place, record, done


# ---- Parquet ----

def without_nulls(value):
    """A column of objects has all fields of all rows: those that a row did not have are null."""
    if isinstance(value, dict):
        return {name: without_nulls(of) for name, of in value.items() if of is not None}
    return [without_nulls(of) for of in value] if isinstance(value, list) else value


def fields_within(kind):
    import pyarrow
    if pyarrow.types.is_struct(kind):
        return [kind.field(i) for i in range(kind.num_fields)]
    lists = pyarrow.types.is_list, pyarrow.types.is_large_list, pyarrow.types.is_fixed_size_list
    return [kind.value_field] if any(is_one(kind) for is_one in lists) else []


def check_columns(path, fields, of=""):
    names = [field.name for field in fields]
    for field in fields:
        if names.count(field.name) > 1:
            raise Wrong(f"{path}: there are two columns '{of}{field.name}'")
        check_columns(path, fields_within(field.type), f"{of}{field.name}.")


def values_of(path, name, column, first):
    """A column's values; an error names the row of one that Python cannot hold."""
    from pyarrow import ArrowException
    try:
        return column.to_pylist()
    except (ValueError, OverflowError, ArrowException):
        pass
    for i, value in enumerate(column):
        try:
            value.as_py()
        except UnicodeDecodeError as error:
            raise Wrong(f"{path}, row {first + i}: byte {error.start + 1} of '{name}' is not UTF-8") from None
        except (ValueError, OverflowError, ArrowException) as error:
            raise Wrong(f"{path}, row {first + i}: '{name}' cannot be read: {error}") from None
    raise Wrong(f"{path}: '{name}' cannot be read")


def rows_of(path, file, needed):
    names, number = file.schema_arrow.names, 0
    check_columns(path, list(file.schema_arrow))
    read = [name for name in names if name in needed]
    for batch in file.iter_batches(batch_size=256, columns=read):
        columns = [values_of(path, name, batch.column(name), number + 1) for name in read]
        for row in zip(*columns) if read else [()] * batch.num_rows:
            number += 1
            yield number, dict.fromkeys(names, UNREAD) | {name: without_nulls(value) for name, value in zip(read, row)}


def parquet(path, needed):
    try:
        from pyarrow import ArrowException, parquet as pq
    except ModuleNotFoundError:
        raise Wrong(f"{path}: reading Parquet requires pyarrow; install it with pip install pyarrow") from None
    try:
        file, size = pq.ParquetFile(path), os.path.getsize(path)
        rows = max(file.metadata.num_rows, 1)
        for number, record in rows_of(path, file, needed):
            yield f"{path}, row {number}", record, size * number // rows
    except (ArrowException, OSError) as error:
        raise Wrong(f"{path}: {error}") from None


# ---- all ----

def plain(path, by_line):
    if by_line:
        for place, line, done in lines_of(path):
            if line.strip():
                yield place, text_of(place, line.rstrip(b"\r\n")), done
    else:
        yield path, text_of(path, pathlib.Path(path).read_bytes()), os.path.getsize(path)


def documents_of(path, by_line, needed):
    """needed: fields of a record that may be read; a Parquet file's other columns are not."""
    kind = pathlib.Path(path).suffix.lower()
    if kind == ".parquet":
        return parquet(path, needed)
    if kind in (".jsonl", ".ndjson"):
        return json_lines(path)
    if kind == ".json":
        raise Wrong(f"{path}: expected JSON lines, one object on each line, in a file NAME.jsonl")
    if kind in (".csv", ".tsv", ".xlsx"):
        raise Wrong(f"{path}: a table cannot be read; write each row as a JSON object with its columns' names on a line of a file NAME.jsonl "
                    "(pandas: read_csv(FILE).to_json(NAME, orient=\"records\", lines=True)), or name the file NAME.txt if it is plain text")
    if kind in (".gz", ".zst", ".xz", ".bz2", ".zip"):
        raise Wrong(f"{path}: unpack it first")
    return plain(path, by_line)
