"""Measure what `submit` and waiting cost on the device at hand; prints one JSON line a row."""

from __future__ import annotations

import json
import statistics
import time

import torch

from omni_platforms import AsyncOutputExecutor, current_platform

P = current_platform()
DEV = P.device(0)


def row(what, **figures):
    print(json.dumps({"what": what, **figures}), flush=True)


def median_us(f, n=2000, warm=200):
    for _ in range(warm):
        f()
    out = []
    for _ in range(n):
        t = time.perf_counter()
        f()
        out.append((time.perf_counter() - t) * 1e6)
    return round(statistics.median(out), 2)


def loop(mode, steps=2000, kernels=10):
    a = torch.zeros(1024, device=DEV)
    tokens = torch.zeros(256, dtype=torch.int64, device=DEV)
    kept, subs = [], []
    with AsyncOutputExecutor(P) as ex:
        P.synchronize()
        start = time.perf_counter()
        for i in range(steps):
            for _ in range(kernels):
                a.add_(1)
            x = tokens + i
            t = time.perf_counter()
            if mode == "sync":
                kept.append(x.cpu())
            elif mode == "submit":
                kept.append(ex.submit(x))
            elif mode == "previous":
                kept.append(ex.submit(x))
                if i:
                    kept[i - 1].result()
            elif mode == "at_once":
                kept.append(ex.submit(x).result())
            subs.append(time.perf_counter() - t)
        P.synchronize()
        total = time.perf_counter() - start
        if mode in ("submit", "previous"):
            for i, f in enumerate(kept):
                assert (f.result(30) == i).all()
        wake = ex.stats().wakeups
    return total / steps * 1e6, statistics.median(subs) * 1e6, wake


def waits():
    side = P.create_side_stream()
    x = torch.rand(3 * 1024 * 1024, device=DEV)
    pin = P.pinned_empty(x.shape, x.dtype)

    def run(wait):
        P.synchronize()
        t = time.perf_counter()
        with P.stream_context(side):
            pin.copy_(x, non_blocking=True)
            e = P.record_device_event(side)
        wait(e)
        return (time.perf_counter() - t) * 1e6

    w = torch.Stream(device=DEV)
    b = torch.cuda.Event(blocking=True)
    ws = torch.cuda.Stream(stream_id=w.stream_id, device_index=w.device_index, device_type=w.device_type)

    def blocking(e):
        w.wait_event(e)
        b.record(ws)
        b.synchronize()

    for name, f in (("spin", lambda e: e.synchronize()), ("poll", P.synchronize_event), ("blocking", blocking)):
        for _ in range(5):
            run(f)
        row(f"wait 12.6 MB {name}", us=round(statistics.median(run(f) for _ in range(60)), 1))
        torch.cuda._sleep(int(3e8))
        e = P.record_device_event()
        c0, t0 = time.thread_time(), time.perf_counter()
        f(e)
        row(f"cpu share of a long wait {name}", share=round((time.thread_time() - c0) / (time.perf_counter() - t0), 3), s=round(time.perf_counter() - t0, 3))


def main():
    row("platform", name=P.name, device=P.device_name(0), torch=torch.__version__)
    waits()
    small = torch.zeros(256, dtype=torch.int64, device=DEV)
    import cProfile, pstats

    with AsyncOutputExecutor(P) as ex:
        for _ in range(500):
            ex.submit(small)
        profile = cProfile.Profile()
        profile.enable()
        for _ in range(3000):
            ex.submit(small)
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(24)
    side = P.create_side_stream()
    row("primitives", current_stream=median_us(lambda: P.current_stream(DEV)), event=median_us(P.record_device_event), event_side=median_us(lambda: P.record_device_event(side)), pinned=median_us(lambda: P.pinned_empty(small.shape, small.dtype)), capturing=median_us(lambda: P.is_capturing(DEV)))
    def ctx():
        with P.stream_context(side):
            pass
    row("stream_context", us=median_us(ctx))
    with AsyncOutputExecutor(P) as ex:
        fs = []
        row("submit one tensor", us=median_us(lambda: fs.append(ex.submit(small))))
        leaves = [torch.zeros(256, device=DEV) for _ in range(5)]
        row("submit five leaves", us=median_us(lambda: fs.append(ex.submit(leaves))))
        row("submit + result", us=median_us(lambda: ex.submit(small).result(), 500))
        row(".cpu()", us=median_us(lambda: small.cpu(), 500))
    for rep in range(3):
        for mode in ("none", "sync", "submit", "previous", "at_once"):
            step, sub, wake = loop(mode)
            row(f"loop {mode}", step_us=round(step, 1), submit_us=round(sub, 1), wakeups=wake)
    big = torch.rand(3, 1024, 1024, device=DEV)
    for n in (1, 4, 19):
        y = big.repeat(n, 1, 1)
        with AsyncOutputExecutor(P) as ex:
            for _ in range(5):
                ex.submit(y).result()
            P.synchronize()
            a = median_us(lambda: ex.submit(y).result(), 40, 5)
            c = median_us(lambda: y.cpu(), 20, 3)
        row(f"{y.numel() * 4 / 1e6:.0f} MB", submit_result_us=a, cpu_us=c)


main()
