"""A hand-made run with a GPU layer: round figures that add up."""

from __future__ import annotations

from fastprof.snapshot import Snapshot, StepRow, Steps
from fastprof.snapshot.gpu import (
    COPY_D2H,
    COPY_H2D,
    HOW_CAPTURED,
    HOW_INHERITED,
    HOW_OTHER,
    HOW_UNKNOWN,
    MEMSET,
    GpuLine,
)
from fastprof.snapshot.memory import MemorySample, MemorySection
from unit.snapshots import (
    MIB,
    MS,
    Builder,
    Node,
    activity,
    c,
    gpu,
    h200,
    health,
    histogram,
    kernel,
    memory,
    py,
    section,
    timeline,
    waits,
)

#: Nodes of the main thread, in the builder's order.
TRAIN, DATA, FORWARD, MODEL, ITEM, BACKWARD, RUN_BACKWARD, OPTIMIZER = range(1, 9)
#: Node of the autograd engine's thread.
OWN_BACKWARD = 1

GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute"
SGEMM = "ampere_sgemm_128x64_tn"
FLASH = "void flash_fwd_kernel<Flash_fwd_kernel_traits<64>>(Flash_fwd_params)"
ADD = "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>(int)"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096>)"


def gpu_training_run() -> Snapshot:
    """Return ten steps of 100 ms on an H200, the first three of them warm-up."""
    builder = Builder()
    model = Node(py("forward", 30, "/x/model.py", "Model.forward"), 10, 100 * MS)
    item = Node(c("item"), 10, 410 * MS)
    backward = Node(section("backward"), 10, 20 * MS, [Node(c("run_backward"), 10, 200 * MS)])
    builder.thread(
        Node(py("train", 1, "/x/train.py"), 1, 30 * MS, [
            Node(section("data"), 10, 150 * MS),
            Node(section("forward"), 10, 50 * MS, [model, item]),
            backward,
            Node(section("optimizer"), 10, 40 * MS),
        ])
    )  # fmt: skip
    own = Node(py("backward", 90, "/x/model.py", "Scale.backward"), 10, 5 * MS)
    builder.thread(own, ident=2, name="autograd", root_ns=1 * MS)
    data, forward = builder.key(section("data")), builder.key(section("forward"))
    run_backward = (0, RUN_BACKWARD)
    layer = gpu(
        activity(0, 300 * MS, (0, MODEL), count=400),
        activity(1, 100 * MS, (0, MODEL), count=2000),
        activity(2, 40 * MS, (0, MODEL), count=20),
        activity(5, 200 * MS, (1, 0), how=HOW_INHERITED, via=run_backward, count=200),
        activity(3, 10 * MS, (1, OWN_BACKWARD), how=HOW_INHERITED, via=run_backward, count=500),
        activity(4, 50 * MS, how=HOW_INHERITED, via=run_backward, count=10),
        activity(COPY_H2D, 30 * MS, (0, DATA), count=10, size=10 * 64 * MIB),
        activity(COPY_D2H, 1 * MS, (0, ITEM), count=10, size=40),
        activity(MEMSET, 2 * MS, (0, OPTIMIZER), count=10, size=4096),
        activity(3, 20 * MS, (0, OPTIMIZER), how=HOW_CAPTURED, via=(0, MODEL), count=100),
        activity(3, 3 * MS, (0, TRAIN), count=3),
        activity(3, 4 * MS, how=HOW_OTHER, count=4),
        activity(-8, 5 * MS, how=HOW_UNKNOWN, count=5),
        cupti_version=130001,
        driver_version=13000,
        devices=(
            h200(
                whole=timeline(700 * MS, (-1, 40 * MS), (data, 200 * MS), (forward, 60 * MS)),
                steps=timeline(
                    525 * MS, (-1, 25 * MS), (data, 140 * MS), (forward, 10 * MS),
                    kernel_ns=510 * MS, compute_ns=480 * MS, communication_ns=50 * MS,
                    overlap_ns=20 * MS, copy_ns=21 * MS, copy_alone_ns=15 * MS,
                ),
                step_count=7,
                health=health(
                    (60,) * 60 + (71,) * 60, (1980,) * 90 + (1785,) * 10, (350_000, 690_000) * 60,
                    judged=120, sw_power_cap=30,
                ),
            ),
        ),
        kernels=(
            # Half a block and then two blocks per multiprocessor, 8 warps of 64 in a block.
            kernel(GEMM, 300 * MS, 400, blocks_ns=66.0 * 300 * MS, registers=168),
            kernel(SGEMM, 100 * MS, 2000, small_count=2000, small_ns=100 * MS,
                   grid_x=16, blocks_ns=16.0 * 100 * MS),
            kernel(FLASH, 40 * MS, 20, blocks_ns=264.0 * 40 * MS),
            kernel(ADD, 37 * MS, 607, small_count=600, small_ns=36 * MS),
            kernel(NCCL, 50 * MS, 10, block_x=512, registers=96),
            kernel(GEMM, 200 * MS, 200, blocks_ns=264.0 * 200 * MS, grid_x=264, registers=168),
        ),
        host=(
            waits((0, MODEL), launches=2420, delays=2420, delay_ns=484 * MS, delay_max_ns=MS),
            waits((0, ITEM), launches=10, delays=10, delay_ns=MS, syncs=10, blocked_ns=400 * MS),
            waits((1, 0), how=HOW_INHERITED, via=run_backward, launches=710, syncs=1,
                  blocked_ns=2 * MS),
        ),
        lines=(
            GpuLine(0, ITEM, "/x/train.py", 88, "train", 8, 350 * MS),
            GpuLine(0, ITEM, "/x/train.py", 88, "train", 1, 10 * MS),
            GpuLine(0, RUN_BACKWARD, "/x/model.py", 92, "Scale.backward", 1, 2 * MS),
        ),
        counters={"records": 3272, "kernels": 3242, "launches": 3140, "syncs": 11},
    )  # fmt: skip
    steps = [100 * MS] * 7
    return builder.snapshot(
        duration_ns=1000 * MS,
        sections=tuple(
            builder.stats(name, [ms * MS] * 10)
            for name, ms in (("data", 15), ("forward", 56), ("backward", 22), ("optimizer", 4))
        ),
        steps=Steps(10, 3, sum(steps), 0.07, 100 * MS, 100 * MS, tuple(steps), histogram(steps),
                    (StepRow(data, 7, 105 * MS), StepRow(forward, 7, 392 * MS))),
        gpu=layer,
        memory=memory(
            samples=tuple(
                MemorySample(i, (1000 + 50 * i) * MIB, 12000 * MIB, 5000 * MIB, 12000 * MIB)
                for i in range(10)
            ),
            peaks_reset=True, steps=10, sum_peak_allocated=50_000 * MIB,
            first_allocated=1000 * MIB, last_allocated=1450 * MIB, device_allocs=40,
            device_frees=20, retries=1,
            sections=(
                MemorySection("forward", 10, 5000 * MIB, 12000 * MIB, 4000 * MIB, 30_000 * MIB),
                MemorySection("backward", 10, 5000 * MIB, 12000 * MIB, 1450 * MIB, -29_500 * MIB),
            ),
        ),
    )  # fmt: skip
