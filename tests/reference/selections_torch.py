"""selections_torch.py: blocks of keys that tiles of queries choose, by brute force in float64, from the rules of docs/language.md.

Queries are [heads, tokens, head_dim], keys [key heads, tokens, head_dim]; doc [tokens] numbers their documents."""
import typing

import torch

TILE = 128
FIRST_QUERY, PREVIOUS_MEAN, OWN_MEAN = range(3)
MEAN_KEY, LIMITS, FIRST_KEY, MAX_KEY = range(4)
OF_HEAD, OF_KV, OF_ALL = range(3)


class Selection(typing.NamedTuple):
    number: int       # among those of a file, and the mask that is it
    mask: int
    block: int
    query: int
    key: int
    heads: int
    where: typing.Callable   # of q, k, doc
    always: typing.Callable
    noncausal: bool = False
    documents: bool = False


def units(n, size):
    return -(-n // size)


def lists_of(s, h, hk):
    return {OF_HEAD: h, OF_KV: hk, OF_ALL: 1}[s.heads]


def allowed(s, n, doc):
    """[tiles][blocks]: `where` leaves a pair that is not always kept, of a block before the tile and in its document."""
    i = torch.arange(n, device=doc.device)
    open_ = s.where(i[:, None], i[None], doc) & ~s.always(i[:, None], i[None])
    tiles, blocks = units(n, TILE), units(n, s.block)
    pad = torch.zeros(tiles * TILE, blocks * s.block, dtype=torch.bool, device=doc.device)
    pad[:n, :n] = open_
    found = pad.view(tiles, TILE, blocks, s.block).any(3).any(1)
    first = torch.arange(tiles, device=doc.device) * TILE
    last = (torch.arange(1, blocks + 1, device=doc.device) * s.block - 1).clamp(max=n - 1)
    if not s.noncausal:
        found &= last[None] <= first[:, None]
    if s.documents:
        found &= doc[last.long()][None] == doc[first.long()][:, None]
    return found


def represent_keys(s, k, doc):
    """[kv][blocks][keys that represent a block][d]"""
    hk, n, d = k.shape
    out = []
    for b in range(0, n, s.block):
        x = k[:, b:b + s.block].double()
        if s.documents:
            own = doc[b:b + x.shape[1]]
            x = x[:, own == own[-1]]
        out.append({MEAN_KEY: lambda: x.mean(1)[:, None], LIMITS: lambda: torch.stack((x.amin(1), x.amax(1)), 1), FIRST_KEY: lambda: x[:, :1],
                    MAX_KEY: lambda: x[:, torch.arange(s.block, device=doc.device).clamp(max=x.shape[1] - 1)]}[s.key]())
    return torch.stack(out, 1)


def represent_queries(s, q, doc):
    """[h][tiles][d]"""
    h, n, d = q.shape
    out = []
    for t in range(0, n, TILE):
        own = q[:, t].double()
        if s.query == OWN_MEAN:
            own = q[:, t:t + TILE].double()[:, (doc[t:t + TILE] == doc[t]) if s.documents else slice(None)].mean(1)
        elif s.query == PREVIOUS_MEAN and t and (not s.documents or doc[t - 1] == doc[t]):
            own = q[:, t - TILE:t].double()[:, (doc[t - TILE:t] == doc[t]) if s.documents else slice(None)].mean(1)
        out.append(own)
    return torch.stack(out, 1)


def brute_force(s, q, k, doc):
    """(score, size) [lists][tiles][blocks]: -inf where a block may not be chosen (NaN counts so too, but may be); size: of the terms."""
    h, hk = q.shape[0], k.shape[0]
    queries, keys = represent_queries(s, q, doc), represent_keys(s, k, doc).repeat_interleave(h // hk, 0)
    if s.key == LIMITS:
        terms = torch.maximum(queries[:, :, None] * keys[:, None, :, 0], queries[:, :, None] * keys[:, None, :, 1])
        score, size = terms.sum(3), terms.abs().sum(3)
    elif s.key == MAX_KEY:
        score = torch.einsum("htd,hbkd->htbk", queries, keys).amax(3)
        size = torch.einsum("htd,hbkd->htbk", queries.abs(), keys.abs()).amax(3)
    else:
        score = queries @ keys[:, :, 0].transpose(1, 2)
        size = queries.abs() @ keys[:, :, 0].abs().transpose(1, 2)
    each = h // lists_of(s, h, hk)
    score, size = (x.view(-1, each, *x.shape[1:]).sum(1) for x in (score, size))
    return score, size


def check_lists(s, top, lists, q, k, doc):
    """Lists beside brute force: (right, lists, lists that differ by scores nearer than fp32 tells apart)."""
    n = q.shape[1]
    may = allowed(s, n, doc)
    score, size = brute_force(s, q, k, doc)
    score = torch.where(score.isnan(), float("-inf"), score)
    right, near = True, 0
    for t in range(lists.shape[0]):
        candidates = may[t].nonzero()[:, 0]
        for i in range(lists.shape[1]):
            got = lists[t, i]
            count = int((got >= 0).sum())
            own = got[:count].long()
            right &= count == min(top, len(candidates)) and bool((got[count:] == -1).all()) and bool((own[1:] > own[:-1]).all())
            right &= bool(may[t][own].all())
            order = sorted(candidates.tolist(), key=lambda b: (-float(score[i, t, b]), b))[:top]
            if sorted(order) == own.tolist():
                continue
            only, missed = set(own.tolist()) - set(order), set(order) - set(own.tolist())
            limit = 2.0 ** -22 * float(size[i, t, list(only | missed)].max())
            right &= all(abs(float(score[i, t, a]) - float(score[i, t, b])) <= limit for a in only for b in missed)
            near += 1
    return right, lists.shape[0] * lists.shape[1], near


def kept(s, lists, h, n, doc):
    """[heads][n][n]: where and (always or chosen)."""
    i = torch.arange(n, device=doc.device)
    blocks = units(n, s.block)
    chosen = torch.zeros(*lists.shape[:2], blocks + 1, dtype=torch.bool, device=doc.device)
    chosen.scatter_(2, torch.where(lists < 0, blocks, lists).long(), True)
    of = chosen[i // TILE][:, :, i // s.block].permute(1, 0, 2).repeat_interleave(h // lists.shape[1], 0)
    return s.where(i[:, None], i[None], doc) & (s.always(i[:, None], i[None]) | of)


def best(s, top, q, k, doc):
    """The lists: numbers of blocks, rising, then -1."""
    may, score = allowed(s, q.shape[1], doc), brute_force(s, q, k, doc)[0]
    lists = torch.full((may.shape[0], score.shape[0], top), -1, dtype=torch.int32, device=doc.device)
    for t in range(lists.shape[0]):
        candidates = may[t].nonzero()[:, 0].tolist()
        for i in range(lists.shape[1]):
            found = sorted(sorted(candidates, key=lambda b: (-float(score[i, t, b]), b))[:top])
            lists[t, i, :len(found)] = torch.tensor(found, dtype=torch.int32)
    return lists
