"""Batches of documents, each tokenized in one of several processes; their results in the order of the batches.

A process has a pipe of its own and one batch at a time: neither a full pipe nor one that is killed in the middle of a result can keep
the others waiting, or this process from ending. It never tokenizes itself, since a library that is busy cannot be interrupted.
"""
import array
import multiprocessing
import os
import signal
import sys
from multiprocessing import resource_tracker
from multiprocessing.connection import wait

from .command import Wrong
from .encoder import Encoder

AHEAD = 4  # results of so many batches a process may wait for an earlier one: the input may be larger than the memory


def tokenize(encoder, batch):
    """(tokens, weights, lengths, documents without a token, whether weights differ from 1), as far as possible as bytes."""
    ids, weights, lengths, empty = array.array("I"), bytearray(), array.array("Q"), 0
    weighted = False
    for place, document in batch:
        tokens, of = encoder.encode(place, document)
        empty += not tokens
        if not tokens:
            continue
        ids.extend(tokens)
        lengths.append(len(tokens))
        weighted |= of is not None
        weights.extend(of if of is not None else b"\1" * len(tokens))
    blob = array.array("H", ids) if encoder.width == 2 else ids
    if sys.byteorder == "big":
        blob.byteswap()
    return blob.tobytes(), bytes(weights), lengths, empty, weighted


def serve(connection, args):
    """Until the other side is gone."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    encoder = None
    try:
        while True:
            batch = connection.recv()
            try:
                encoder = encoder or Encoder(args)
                found = tokenize(encoder, batch)
            except (Wrong, MemoryError) as error:
                found = str(error) or "out of memory"
            connection.send(found)
    except (EOFError, ConnectionError):
        return


class Workers:
    def __init__(self, args):
        self.args, self.processes, self.numbers, self.idle = args, {}, {}, []  # numbers: the batch that each has

    def start(self):
        """A process inherits that SIGINT is blocked: Ctrl-C is for the one that reads and writes."""
        context = multiprocessing.get_context("spawn")
        resource_tracker.ensure_running()  # which unblocks SIGINT
        ours, theirs = context.Pipe()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process = context.Process(target=serve, args=(theirs, self.args), daemon=True)
            process.start()
            self.processes[ours] = process
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        self.idle.append(ours)

    def receive(self):
        """(number, result) of the batches that are done, at least one."""
        for connection in wait(list(self.numbers)):
            self.idle.append(connection)
            yield self.numbers.pop(connection), connection.recv()

    def results(self, batches):
        done, told = {}, 0
        try:
            for number, batch in enumerate(batches):
                if not self.idle and len(self.processes) < self.args.processes:
                    self.start()
                while not self.idle or number - told >= AHEAD * self.args.processes:
                    done.update(self.receive())
                    while told in done:
                        yield done.pop(told)
                        told += 1
                connection = self.idle.pop()
                self.numbers[connection] = number
                connection.send(batch)
            while self.numbers:
                done.update(self.receive())
            yield from (done[number] for number in sorted(done))
        except (EOFError, ConnectionError):
            raise Wrong("a process that tokenizes was lost, perhaps for want of memory; try fewer with --processes N") from None

    def end(self):
        for process in self.processes.values():
            process.kill()
            process.join()
