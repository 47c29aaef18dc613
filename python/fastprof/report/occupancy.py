"""Estimates how well kernels fill a GPU, from their launches alone.

The definitions are those of PyTorch's profiler and its TensorBoard plugin:

* *blocks per SM* of a launch is its number of blocks over the number of multiprocessors;
  the mean over launches is weighted by their duration;
* *estimated achieved occupancy* of a launch is min(blocks that fit on an SM, blocks per SM) x warps
  per block / most warps that an SM can hold; the mean is weighted likewise.

The number of blocks that fit follows the rules of the CUDA occupancy calculator: the smallest of
the limits on blocks, warps, registers and shared memory.
"""

from collections.abc import Iterable

from fastprof.snapshot.gpu import GpuDevice, GpuKernel

#: A warp gets registers in units of this size.
_REGISTER_UNIT = 256


def blocks_that_fit(device: GpuDevice, kernel: GpuKernel) -> int | None:
    """Return how many blocks of a kernel fit on one multiprocessor at a time.

    Assumes shared memory as large as the device allows.  None if the device's limits are unknown, 0
    if not even one block fits by these rules.
    """
    threads = kernel.block_x * kernel.block_y * kernel.block_z
    if not (threads and device.warp_size and device.threads_per_multiprocessor):
        return None
    warps = -(-threads // device.warp_size)
    limits = [device.threads_per_multiprocessor // device.warp_size // warps]
    if device.blocks_per_multiprocessor:
        limits.append(device.blocks_per_multiprocessor)
    if device.registers_per_multiprocessor and kernel.registers:
        limits.append(_warps_by_registers(device, kernel.registers) // warps)
    shared = kernel.static_shared + kernel.dynamic_shared
    # From compute capability 8.0 on the system reserves 1 KiB per block.
    modern = device.capability >= (8, 0)
    shared += 1024 if modern else 0
    if device.shared_bytes_per_multiprocessor and shared:
        unit = 128 if modern else 256
        limits.append(device.shared_bytes_per_multiprocessor // (-(-shared // unit) * unit))
    return min(limits)


def _warps_by_registers(device: GpuDevice, per_thread: int) -> int:
    per_warp = -(-per_thread * device.warp_size // _REGISTER_UNIT) * _REGISTER_UNIT
    # A warp runs in one partition of a multiprocessor, with that partition's registers.
    partitions = 2 if device.capability == (6, 0) else 4
    return device.registers_per_multiprocessor // partitions // per_warp * partitions


def blocks_per_sm(device: GpuDevice | None, kernels: Iterable[GpuKernel]) -> float | None:
    """Return the mean number of blocks per multiprocessor over launches on one device."""
    kernels = tuple(kernels)
    total_ns = sum(k.sum_ns for k in kernels)
    if device is None or not device.multiprocessors or not total_ns:
        return None
    return sum(k.blocks_ns for k in kernels) / total_ns / device.multiprocessors


def achieved_occupancy(device: GpuDevice | None, kernels: Iterable[GpuKernel]) -> float | None:
    """Return the estimated achieved occupancy, 0 to 1, over launches on one device."""
    weighted = 0.0
    total_ns = 0
    for kernel in kernels:
        resident = None if device is None else blocks_that_fit(device, kernel)
        mean = blocks_per_sm(device, (kernel,))
        # A kernel that ran did fit: with 0, the rules or limits are not the device's.
        if device is None or not resident or mean is None:
            continue
        warps = -(-kernel.block_x * kernel.block_y * kernel.block_z // device.warp_size)
        most = device.threads_per_multiprocessor // device.warp_size
        weighted += min(resident, mean) * warps / most * kernel.sum_ns
        total_ns += kernel.sum_ns
    return weighted / total_ns if total_ns else None
