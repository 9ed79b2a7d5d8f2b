#!/usr/bin/env python3
"""run_strangers.py MINI_MAIN [SLOW_LISTEN]: jobs that start while strangers (strangers.py) hold connections to their rank 0, flood
it, replay what they recorded, or know the secret and then say what no rank may say. All of it stays on this machine's loopback."""
import contextlib, glob, os, random, re, signal, socket, struct, subprocess, sys, threading, time
import strangers
import runner
from timeouts import scaled_timeout
from strangers import DATA, FAILED, GRANT, attacked, become_rank_1, frame, hello, job_key

HERE = os.path.dirname(os.path.abspath(__file__))
MINI, SLOW_LISTEN = runner.words(__doc__, "mini_main", more="slow_listen")
SECRET = "a secret of thirty characters."
START_LIMIT = 2 # seconds from the last rank's start to the first step
LATE = 0.7      # seconds after which that rank starts
MASTER_PORT = 30000 + os.getpid() % 250 * 8 # not ranks.py's, and below the kernel's own choice
failures = 0

def expect(name, good, text=""):
    global failures
    print(f"{'ok' if good else 'FAILED'}: {name}", "" if good else text, flush=True)
    failures += not good

def environment(**more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "BURST", "TORCHELASTIC"))}
    return {**env, **{k: str(v) for k, v in more.items()}}

class Job:
    """Under ranks.py, or with rank 0 alone. Its output comes as bytes, and when its first step was done."""
    def __init__(self, world=4, hosts=2, late=True, only=None, options=(), secret=SECRET, settings=()):
        global MASTER_PORT
        self.port, self.secret = MASTER_PORT, secret
        MASTER_PORT += 10
        self.at = ("127.0.0.1", self.port + 1)
        env = environment(MINI=f"{world} 1 0 4 3 2", MASTER_PORT=self.port, MASTER_ADDR="127.0.0.1", BURST_SECRET=secret)
        if only is not None:
            env.update(RANK=str(only), WORLD_SIZE=str(world))
            command = [MINI, *options]
        else:
            sleep = f'[ "$RANK" != {world - 1} ] || sleep {LATE}; exec "$0" "$@"' if late else 'exec "$0" "$@"'
            sets = [s for one in (f"MASTER_PORT={self.port}", *settings) for s in ("--set", one)]
            command = [f"{HERE}/ranks.py", *sets, "--hosts", str(hosts), str(world), "sh", "-c", sleep, MINI, *options]
        self.begun, self.first_step, self.output = time.monotonic(), None, b""
        self.process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            if b"step 1/" in line and self.first_step is None:
                self.first_step = time.monotonic() - self.begun
            self.output += line
        self.seconds = time.monotonic() - self.begun

    def wait(self, limit=20):
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(scaled_timeout(limit))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()
        return self.process.returncode

    def plain(self):
        return all(32 <= byte < 127 or byte == 10 for byte in self.output)

def expect_start(name, job):
    code = job.wait()
    took = (job.first_step or 1e9) - LATE
    quiet = job.plain() and b"evil" not in job.output and b"GET" not in job.output and b"burst:" not in job.output
    expect(f"{name}: begins {took:.2f} s after its last rank", code == 0 and took < scaled_timeout(START_LIMIT) and quiet, (code, job.output))

def expect_failure(name, job, code, text, limit=3.0):
    got = job.wait()
    good = got == code and text.encode() in job.output and job.plain() and job.seconds < scaled_timeout(limit)
    expect(f"{name} ({job.seconds:.1f} s)", good, (got, text, job.seconds, job.output))

# ---- who listens ----
def inodes_listening():
    found = {}
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(FileNotFoundError), open(name) as f:
            for line in list(f)[1:]:
                field = line.split()
                if field[3] == "0A":
                    found[field[9]] = field[1]
    return found

def listeners_of(session):
    """Local addresses, in the kernel's hexadecimal, on which processes of a session listen by TCP."""
    found, all_ = set(), inodes_listening()
    for fd in glob.glob("/proc/[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            inode = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(fd))
            if inode and inode[1] in all_ and os.getsid(int(fd.split("/")[2])) == session:
                found.add(all_[inode[1]])
    return found

def unix_name(job, secret=None, user=None, port=0):
    """BURST_SECRET is part of it, the user, and BURST_PORT."""
    key = job_key(job.secret if secret is None else secret, job.port)
    name = strangers.mac(key, b"burst name\0", struct.pack("<ii", os.geteuid() if user is None else user, port))
    return f"burst-{struct.unpack_from('<Q', name)[0] | 1:016x}-1"

def first_listeners(job):
    """By TCP, once rank 0 listens there or at its Unix socket."""
    there = set()
    while job.process.poll() is None and not there and unix_name(job) not in open("/proc/net/unix").read():
        there = listeners_of(job.process.pid)
    return there or listeners_of(job.process.pid)

def listening():
    job = Job()
    there = first_listeners(job)
    job.wait()
    expect("ranks of several hosts on 127.0.0.1 listen there and nowhere else", there == {f"0100007F:{job.at[1]:04X}"}, there)
    job = Job(hosts=1)
    there = first_listeners(job)
    with attacked(b"\0" + unix_name(job).encode()):
        expect_start("one host, strangers on its Unix socket", job)
    expect("ranks of one host listen on no TCP port", not there, there)

def taken_names():
    """Nobody's way is barred by whoever listens at the name of another secret, user or BURST_PORT of the same job."""
    port = MASTER_PORT + 5
    for what, secret, own, other in [("no secret", SECRET, 0, {"secret": ""}), ("another secret", SECRET, 0, {"secret": SECRET[::-1]}),
                                     ("another user", SECRET, 0, {"user": os.geteuid() + 1}), ("no BURST_PORT", SECRET, port, {}),
                                     ("a secret", "", 0, {"secret": SECRET})]:
        settings = [f"BURST_SECRET={secret or '-'}", f"BURST_PORT={own or '-'}"]
        job = Job(hosts=1, secret=secret, settings=settings) # begins LATE
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as s:
            s.bind(b"\0" + unix_name(job, **other).encode())
            s.listen()
            expect(f"the name of {what} is not the job's", listens(job, unix_name(job, port=own)))
            expect_start(f"the name of {what} is taken", job)

def listens(job, name):
    while job.process.poll() is None:
        if name in open("/proc/net/unix").read():
            return True
    return False

def another_user():
    if os.geteuid() != 0:
        return print("not root: no other user tries the Unix socket")
    job = Job(hosts=1)
    first_listeners(job)
    name = unix_name(job).encode() # as this user has it
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        s = strangers.connect(b"\0" + name, 5)
        with contextlib.suppress(OSError):
            s.sendall(strangers.MAGIC + bytes(32))
            os._exit(len(s.recv(64)))
        os._exit(0)
    expect("another user is not answered", os.waitpid(child, 0)[1] == 0)
    expect_start("one host, and another user's connection", job)

# ---- strangers ----
def while_attacked():
    for names in [[name] for name in strangers.ATTACKS] + [list(strangers.ATTACKS)]:
        job = Job()
        with attacked(job.at, *names):
            expect_start("strangers: " + ", ".join(names), job)

def patience():
    job = Job(world=2, only=0)
    first_listeners(job)
    began = time.monotonic()
    with contextlib.suppress(OSError), contextlib.closing(strangers.connect(job.at, scaled_timeout(4))) as s:
        s.sendall(strangers.MAGIC[:7])
        s.recv(1)
    took = time.monotonic() - began
    job.wait(0)
    expect(f"half a call is sent away after {took:.1f} s", 1.5 < took < 2 + scaled_timeout(1.5))

def time_out():
    """A rank with another secret, and everybody else: the job fails at its time-out and says why. On a slow host too, where the
    time left once rank 0 listens is less than the time-out that is named."""
    slow = [f"LD_PRELOAD={library}" for library in SLOW_LISTEN]
    job = Job(late=False, options=["--quiet", "--timeout", "1"],
              settings=[f"BURST_SECRET={SECRET},{SECRET},{SECRET},{SECRET[::-1]}", *slow])
    with attacked(job.at):
        job.wait()
    said = job.output.decode(errors="replace")
    expect(f"fails at its time-out of 5 s ({job.seconds:.1f} s)", job.process.returncode == 1 and 5 <= job.seconds < 5 + scaled_timeout(2.5) and job.plain(),
           (job.process.returncode, said))
    for text in ["timed out after 5 s (see --timeout), waiting for rank 3 of 4", "other connections, the last from 127.0.0.1",
                 "rank 3 cannot reach rank 0 at 127.0.0.1", "after 5 s (see --timeout): no answer", "has a different secret (BURST_SECRET)"]:
        expect(f"says '{text}'", text in said, said)
    expect("prints nothing of theirs", "evil" not in said and "GET" not in said, said)

class Proxy:
    """127.0.0.2 as a way to 127.0.0.1, recording what callers send."""
    def __init__(self, port):
        self.port, self.sent = port, []
        self.server = socket.create_server(("127.0.0.2", port))
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self.server.accept()
                try:
                    callee = socket.create_connection(("127.0.0.1", self.port))
                except OSError:
                    caller.close()
                    continue
                record = bytearray()
                self.sent.append(record)
                for ends in ((caller, callee, record), (callee, caller, bytearray())):
                    threading.Thread(target=self.copy, args=ends, daemon=True).start()

    @staticmethod
    def copy(a, b, record):
        with contextlib.suppress(OSError):
            while data := a.recv(65536):
                record += data
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)

def record_a_run():
    """What rank 1 said to rank 0 in a whole run of two ranks, and its identity."""
    global MASTER_PORT
    proxy = Proxy(MASTER_PORT + 1)
    job = Job(world=2, late=False, settings=["MASTER_ADDR=127.0.0.1,127.0.0.2"])
    code = job.wait()
    proxy.server.close()
    whole = [bytes(s) for s in proxy.sent if len(s) > strangers.CALL + strangers.ENTRY]
    expect("a run through a proxy", code == 0 and len(whole) == 2, (code, job.output, [len(s) for s in proxy.sent]))
    return job.port, whole, whole[0][strangers.CALL + strangers.ENTRY:][:strangers.IDENTITY]

def replay(port, said):
    """The same job once more: same ports, same secret."""
    global MASTER_PORT
    back, MASTER_PORT = MASTER_PORT, port
    job = Job(world=2)
    MASTER_PORT = back
    welcomed = []
    while job.process.poll() is None and job.first_step is None:
        for one in said:
            with contextlib.suppress(OSError), contextlib.closing(strangers.connect(job.at, 0.2)) as s:
                s.sendall(one)
                answer = bytearray()
                with contextlib.suppress(OSError): # closed with what it has not read
                    while data := s.recv(4096):
                        answer += data
                welcomed.append(len(answer) > strangers.PROOF)
        time.sleep(0.02)
    expect_start("a replayed run", job)
    expect(f"{len(welcomed)} replays were refused", welcomed and not any(welcomed), welcomed)

# ---- ranks that know the secret and misbehave ----
GARBLED = "corrupt packet from rank 1"
EARLY = [frame(DATA, 3, i, b"early") for i in range(9)]
MISBEHAVIOUR = {
    "a failure of status -2^31": (frame(FAILED, sequence=1 << 31, data=b"evil"), 1, GARBLED),
    "a failure of status 0": (frame(FAILED, data=b"evil"), 1, GARBLED),
    "a failure with raw bytes": (frame(FAILED, sequence=4, data=b"\x1b[31m\x9b\xff\n"), 1, r"on another host: \x1b[31m\x9b\xff\x0a"),
    "a failure of 4 GiB": (frame(FAILED, sequence=4, length=0xffffffff), 1, GARBLED),
    "a frame of 4 GiB": (frame(DATA, length=0xffffffff), 1, GARBLED),
    "a message of 2^63 bytes": (frame(DATA, 3, 0, b"x" * 100, bytes_=1 << 63), 1, GARBLED),
    "a message from its end": (frame(DATA, 3, 0, b"x" * 100, bytes_=200, at=100), 1, GARBLED),
    "a message before the last": (EARLY[0] + EARLY[0], 1, GARBLED + ": kind 0, channel 3, message 0"),
    "a message left out": (EARLY[0] + EARLY[2], 1, GARBLED + ": kind 0, channel 3, message 2"),
    "more early messages than are kept": (b"".join(EARLY), 1, GARBLED + ": kind 0, channel 3, message 8"),
    "early messages larger than small": (frame(DATA, 3, 0, bytes(4097)), 1, GARBLED),
    "endless empty pieces": (frame(DATA, 3, 0, bytes_=8), 1, GARBLED),
    "fewer receives than before": (frame(GRANT, 3, 9) + frame(GRANT, 3, 8), 1, GARBLED),
    "2^64 - 1 receives": (frame(GRANT, 3, -1), 1, GARBLED),
    "channel 2^32 - 1": (frame(DATA, 0xffffffff, 0, b"x"), 1, GARBLED),
    "an unknown kind": (frame(77), 1, GARBLED),
    "random bytes": (random.Random(1).randbytes(4096), 1, GARBLED),
}

def misbehave(identity):
    for name, (sent, code, text) in MISBEHAVIOUR.items():
        job = Job(world=2, only=0, options=["--quiet"])
        ends = become_rank_1(job.at, job_key(SECRET, job.port), identity)
        ends[1].sendall(sent)
        expect_failure("rank 1 sends " + name, job, code, text)
        for s in ends:
            s.close()

def raw_names():
    job = Job(world=2, only=0, options=["--quiet"])
    name = b"\x1b]0;evil\x07" + bytes(range(128, 160))
    while job.process.poll() is None:
        with contextlib.suppress(OSError), contextlib.closing(strangers.connect(job.at, 5)) as s:
            strangers.handshake(s, job_key(SECRET, job.port), hello(5, name=name))
            break
    expect_failure("a rank with a raw name", job, 2, r"a process on \x1b]0;evil\x07\x80\x81", 4)

def false_rank_0():
    """Knows the secret; answers with a status and a text that no rank 0 has."""
    job = Job(world=2, only=1, options=["--quiet"])
    with socket.create_server(job.at) as server:
        caller = server.accept()[0]
        strangers.answer_call(caller, job_key(SECRET, job.port))
        caller.sendall(struct.pack("<i", -1 << 31) + bytes(32) + b"\x1b[2Jevil".ljust(1024, b"\xfe"))
        expect_failure("rank 0 answers with raw text", job, 1, r"\x1b[2Jevil\xfe")
        caller.close()

def weak_secret():
    expect_failure("a secret that is too short", Job(world=2, only=0, secret="short"), 2, "BURST_SECRET has 5 characters, expected at least 16")

listening()
taken_names()
another_user()
while_attacked()
patience()
time_out()
port, said, identity = record_a_run()
replay(port, said)
misbehave(identity)
raw_names()
false_rank_0()
weak_secret()
sys.exit(failures != 0)
