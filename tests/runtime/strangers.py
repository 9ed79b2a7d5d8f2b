#!/usr/bin/env python3
"""strangers.py HOST PORT SECONDS: what does not belong to a job and calls its rank 0 all the same, for so long: 660
connections that say nothing, a flood of random bytes, calls that come byte by byte, and calls whose proof is wrong.

Also the handshake and the frames of runtime/host/net/handshake.c, members.c and tcp.c written a second time, with Python's own
hmac, so that tests can be a rank with the right secret that then misbehaves."""
import contextlib, hashlib, hmac, os, pathlib, random, select, socket, struct, sys, threading, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from timeouts import scaled_timeout  # noqa: E402

MAGIC, FRAME_MAGIC, M64 = b"BURSTRV3", 0x42525354, (1 << 64) - 1
HELLO, CALL, PROOF, ENTRY, MEMBER, ANSWER = 96, 40, 64, 128, 128, 4 + 32 + 1024
IDENTITY, VERDICT = 8192, 4 + 1024
DATA, GRANT, STEP, BYE, FAILED = range(5)

# ---- attacks: each runs until `stop` is set, on addresses as create_connection takes them, or a Unix socket's name ----
def connect(at, timeout=1):
    if isinstance(at, bytes):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(timeout)
        s.connect(at)
        return s
    return socket.create_connection(at, timeout=timeout)

def silent(at, stop, count=60):
    """As many all the time: who is sent away comes again."""
    held = []
    while not stop.is_set():
        gone = select.select(held, [], [], 0)[0]
        for s in gone:
            s.close()
        held = [s for s in held if s not in gone]
        with contextlib.suppress(OSError):
            while len(held) < count and not stop.is_set():
                held.append(connect(at))
        stop.wait(0.02)
    for s in held:
        s.close()

def repeatedly(one):
    def attack(at, stop):
        while not stop.is_set():
            with contextlib.suppress(OSError), contextlib.closing(connect(at)) as s:
                one(s, stop)
                continue
            stop.wait(0.01)
    return attack

@repeatedly
def flood(s, stop):
    s.sendall(random.choice([b"", MAGIC, MAGIC[:5], b"\x1b[31mGET / HTTP/1.1\r\n"]) + os.urandom(random.choice([1, 40, 4000, 200000])))

@repeatedly
def drip(s, stop):
    for byte in MAGIC + b"x" * 1000:
        if stop.wait(0.05):
            return
        s.sendall(bytes([byte]))

@repeatedly
def wrong_proof(s, stop):
    s.sendall(MAGIC + os.urandom(32))
    receive(s, PROOF)
    s.sendall(hello(random.randrange(-3, 9), name=b"\x1b[31mevil\x07") + os.urandom(32))
    s.recv(1)

def many_silent(at, stop):
    silent(at, stop, 600)

ATTACKS = {"60 silent": silent, "600 silent": many_silent, "flood": flood, "drip": drip, "wrong proof": wrong_proof}

@contextlib.contextmanager
def attacked(at, *names):
    stop = threading.Event()
    threads = [threading.Thread(target=ATTACKS[name], args=[at, stop]) for name in names or ATTACKS]
    for t in threads:
        t.start()
    try:
        yield
    finally:
        stop.set()
        for t in threads:
            t.join()

# ---- the handshake ----
def receive(s, count):
    data = b""
    while len(data) < count:
        more = s.recv(count - len(data))
        if not more:
            raise ConnectionError(f"closed after {len(data)} of {count} bytes")
        data += more
    return data

def mix64(x):
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9 & M64
    x = (x ^ x >> 27) * 0x94d049bb133111eb & M64
    return x ^ x >> 31

def hash3(a, b, c):
    golden = 0x9e3779b97f4a7c15
    return mix64(mix64(mix64((a + golden) & M64) + b & M64) + c * golden & M64)

def mac(key, *parts):
    return hmac.new(key, b"".join(parts), hashlib.sha256).digest()

def job_number(master_port):
    return hash3(mix64(master_port + 0x9e3779b97f4a7c15 & M64), 0, 0)

def job_key(secret, master_port):
    return mac(secret.encode(), b"burst rendezvous\0", struct.pack("<Q", job_number(master_port)))

def mesh_key(key, nonce):
    return mac(key, b"burst mesh\0", nonce)

def hello(rank, to=0, name=b"stranger", instance=7, host=99):
    return struct.pack("<QQiiii64s", instance, host, rank, to, -1, 0, name)

def handshake(s, key, mine):
    """As caller: proves both ends. The callee's Proof is checked."""
    caller = os.urandom(32)
    s.sendall(MAGIC + caller)
    proof = receive(s, PROOF)
    if proof[32:] != mac(key, b"burst callee\0", caller, proof[:32]):
        raise ConnectionError("the callee did not prove the key")
    s.sendall(mine + mac(key, b"burst caller\0", caller, proof[:32], mine))
    if receive(s, 8) != MAGIC:
        raise ConnectionError("no welcome")

def answer_call(s, key):
    """As callee: the caller's hello, checked."""
    call = receive(s, CALL)
    callee = os.urandom(32)
    s.sendall(callee + mac(key, b"burst callee\0", call[8:], callee))
    entry = receive(s, ENTRY)
    if call[:8] != MAGIC or entry[HELLO:] != mac(key, b"burst caller\0", call[8:], callee, entry[:HELLO]):
        raise ConnectionError("the caller did not prove the key")
    s.sendall(MAGIC)
    return entry[:HELLO]

def frame(kind, channel=0, sequence=0, data=b"", length=None, bytes_=None, at=0, step=0):
    length = len(data) if length is None else length
    return struct.pack("<IIIIQQQq", FRAME_MAGIC, kind, channel, length, sequence & M64, (length if bytes_ is None else bytes_) & M64,
                       at & M64, step) + data

def become_rank_1(at, key, identity):
    """Through the whole rendezvous of two ranks on two hosts; the connection of the mesh comes back."""
    deadline = time.monotonic() + scaled_timeout(10)
    while True:
        try:
            root = connect(at, scaled_timeout(10))
            handshake(root, key, hello(1))
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
    answer = receive(root, ANSWER)
    table = receive(root, 2 * MEMBER)
    mine = table[MEMBER:MEMBER + HELLO]
    def agree(piece):
        root.sendall(piece)
        return receive(root, 2 * len(piece))
    root.sendall(identity)
    if any(receive(root, VERDICT)):
        raise ConnectionError("refused: another plan")
    agree(struct.pack("<qq", 1, 3)) # the memory of its host: made
    agree(b"\1")                    # shared
    agree(b"\0\0")                  # its port: nobody calls it
    mesh = connect(at, scaled_timeout(10))
    handshake(mesh, mesh_key(key, answer[4:36]), mine)
    agree(b"\1")
    return root, mesh

if __name__ == "__main__":
    with attacked((sys.argv[1], int(sys.argv[2]))):
        time.sleep(float(sys.argv[3]))
