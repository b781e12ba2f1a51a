"""A rank that ends before the backward pass, or is slow in a second forward pass:
the others get torch's error, in its time.

    python_parallel_lost.py LIBRARY ended|slow"""
import datetime
import multiprocessing
import os
import sys
import tempfile
import time

import torch

if not torch.distributed.is_available():
    print("all good: no torch.distributed")
    sys.exit()

import torch.distributed as dist  # noqa: E402

import attn  # noqa: E402
import attn.torch  # noqa: E402

RANKS, LIMIT, SLOW = 3, 5, 40


def rank_of(rank, path, library, how):
    dist.init_process_group("gloo", rank=rank, world_size=RANKS,
                            init_method="file://" + path)
    p = attn.load(library).grouped
    dist.barrier()
    group = dist.new_group(timeout=datetime.timedelta(seconds=LIMIT))
    cp = attn.torch.context_parallel(p, group)
    q, k, v = (attn.torch.shard(torch.randn(1, 4, 96, 16), 2, group)
               .requires_grad_() for _ in range(3))
    o, _ = cp(q, k, v)
    dist.barrier()
    if rank == 1:
        if how == "ended":
            os._exit(7)
        time.sleep(SLOW)
    begin = time.time()
    try:
        o.sum().backward() if how == "ended" else cp(q, k, v)
    except RuntimeError as e:
        assert not isinstance(e, attn.Error), e
        took = time.time() - begin
        assert took < LIMIT + 10, took
        print(f"rank {rank}: {type(e).__name__}", flush=True)
        os._exit(0)
    raise AssertionError("no error")


if __name__ == "__main__":
    # Forked, ranks have torch already, which takes seconds to import.
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as where:
        jobs = [fork.Process(target=rank_of, args=(
            r, os.path.join(where, "meet"), *sys.argv[1:]))
            for r in range(RANKS)]
        for job in jobs:
            job.start()
        jobs[0].join(60)
        jobs[2].join(60)
        assert jobs[0].exitcode == jobs[2].exitcode == 0
        jobs[1].kill()
        jobs[1].join()
    print("all good")
