"""Fixes per rule and trainer: real options of today's releases.

Fixes that depend on the run are in :mod:`fastprof.findings.remedies`.  The options are those of
PyTorch 2.13, Lightning 2.6, transformers 5 and Accelerate 1.15.  A rule without an entry for a
trainer uses PyTorch's text.
"""

from collections.abc import Mapping

HF = "TrainingArguments"

_FIXES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "worker-shutdown": {
        "torch": (
            "DataLoader(persistent_workers=True): the workers stay for the next epoch.",
            ("torch waits 5 s for a worker that does not exit: close files and threads of the "
            "dataset."),
        ),
        "transformers": (
            f"{HF}(dataloader_persistent_workers=True): the workers stay for the next epoch.",
        ),
    },
    "loader-recreated": {
        "torch": (
            ("Build the DataLoader once, before the loop over epochs, with "
            "persistent_workers=True."),
            "Keep the imports and data of a worker small; fork starts faster than spawn.",
        ),
        "lightning": (
            ("DataLoader(persistent_workers=True): the one that fit() is given or that "
            "train_dataloader() returns. Trainer(reload_dataloaders_every_n_epochs=...) must be 0, "
            "its default."),
        ),
        "transformers": (f"{HF}(dataloader_persistent_workers=True).",),
    },
    "token-counting": {
        "torch": (
            "Do not count tokens by iterating over the loader; count in the collator.",
            "With oumi: include_performance_metrics: false.",
        ),
        "transformers": (
            (f'{HF}(include_num_input_tokens_seen="no"); before release 5 also '
            "include_tokens_per_second=False."),
            "With oumi: include_performance_metrics: false.",
        ),
    },
    "sampler-time": {
        "torch": (
            ("Sort and bucket once and cache the sorted indices; make the collate function "
            "cheaper."),
            "A sampler runs in the training process even with workers.",
        ),
        "transformers": (
            (f'{HF}(train_sampling_strategy="group_by_length") needs a precomputed column of '
            "lengths; cache the sorted indices of a sampler of your own."),
        ),
    },
    "sync-item": {
        "torch": (
            ("Read values every 50 or 100 steps, not in every step: add up metrics in a tensor "
            "(loss.detach()) and read it once."),
            ("Compute on whole tensors instead of element by element; tensor.tolist() reads "
            "all elements at once."),
        ),
        "lightning": (
            ("self.log(..., on_step=False, on_epoch=True) or Trainer(log_every_n_steps=100); log "
            "tensors, not .item()."),
        ),
        "transformers": (
            (f"{HF}(logging_steps=100, logging_nan_inf_filter=False); compute metrics in "
            "evaluation, not in compute_loss."),
            f"{HF}(use_liger_kernel=True) avoids large logits.",
        ),
        "accelerate": (
            ("Add up loss.detach() and call .item() and accelerator.gather() every 50 or 100 "
            "steps."),
        ),
    },
    "tensor-copies": {
        "torch": (
            ("One dtype throughout: torch.autocast(dtype=torch.bfloat16), batches in the dtype of "
            "the model; put data on the device before forward."),
            ("Create tensors where they are used (device=, dtype=); fewer .cpu(), .clone() and "
            ".contiguous()."),
        ),
        "lightning": ('Trainer(precision="bf16-mixed"), batches in the same dtype.',),
        "transformers": (f"{HF}(bf16=True), batches in the same dtype.",),
        "accelerate": ('Accelerator(mixed_precision="bf16"), batches in the same dtype.',),
    },
    "transfers-to-gpu": {
        "torch": (
            ("DataLoader(pin_memory=True) and .to(device, non_blocking=True) for batches: the host "
            "then goes on during a copy."),
        ),
        "transformers": (f"{HF}(dataloader_pin_memory=True).",),
        "accelerate": (
            "DataLoader(pin_memory=True) and DataLoaderConfiguration(non_blocking=True).",
        ),
    },
    "transfers-to-host": {
        "torch": ("Fewer .cpu() and .numpy() in the loop: compute metrics on the device.",),
        "transformers": (
            ("Trainer(preprocess_logits_for_metrics=...): return only what compute_metrics needs."),
        ),
        "accelerate": ("Fewer .cpu() in the loop: compute metrics on the device.",),
    },
    "logging-share": {
        "torch": (
            ("Log every 100 steps, not in every step; write files from another thread "
            "(logging.handlers.QueueHandler), and do not flush each line."),
            "Switch W&B off while profiling.",
        ),
        "lightning": (
            ("Call self.log() in every 50th training_step, not in each: it takes time even if "
            "Trainer(log_every_n_steps=...) writes nothing. Check the callbacks' work per batch."),
        ),
        "transformers": (
            f'{HF}(logging_steps=100), report_to="none" while profiling.',
        ),
    },
    "checkpoint-often": {
        "torch": (
            ("Save every few hundred steps or minutes; torch.distributed.checkpoint.async_save "
            "writes in the background."),
        ),
        "lightning": (
            ("ModelCheckpoint(every_n_train_steps=500) or train_time_interval=; "
            "AsyncCheckpointIO() writes in the background."),
        ),
        "transformers": (
            f'{HF}(save_strategy="steps", save_steps=500).',
        ),
        "accelerate": ("Call accelerator.save_state() every few hundred steps.",),
    },
    "unaccounted": {
        "torch": (
            ("Use fewer callbacks, less logging, or larger batches: the trainer does this work for "
            "each batch, whatever its size."),
        ),
        "lightning": (
            ("Lightning does this work for each batch, whatever its size: use fewer callbacks and "
            "self.log() calls, or larger batches. Trainer(barebones=True) shows the step without "
            "callbacks, loggers and the progress bar."),
        ),
        "transformers": (
            (f"The Trainer does this work for each batch, whatever its size: {HF}("
            'report_to="none", disable_tqdm=True), fewer callbacks, or a larger '
            "per_device_train_batch_size."),
        ),
    },
    "validation-share": {
        "torch": (
            ("Validate less often or on fewer batches, with larger batches, in model.eval() and "
            "torch.inference_mode()."),
        ),
        "lightning": (
            "Trainer(check_val_every_n_epoch=..., val_check_interval=..., limit_val_batches=...).",
        ),
        "transformers": (
            (f'{HF}(eval_strategy="steps", eval_steps=...) less often, a larger '
            "per_device_eval_batch_size, a smaller eval_dataset."),
        ),
    },
    "gc-pressure": {
        "torch": (
            ("gc.collect(); gc.freeze() after the model is built: later collections skip the "
            "objects that exist then."),
            ("gc.disable() in the loop and gc.collect(1) every few hundred steps (in distributed "
            "runs at the same steps on all ranks), or gc.set_threshold(50_000, 20, 20)."),
            "Create fewer containers per step; do not keep graphs or lists of Python objects.",
        ),
    },
    "cpu-contention": {
        "torch": (
            ("Fewer threads: torch.set_num_threads(CPUs / processes) or OMP_NUM_THREADS, and no "
            "more loader workers than CPUs are left."),
            ("Or give the program more CPUs: check the job's request to the scheduler, the "
            "container's limit, `taskset` and the launcher's CPU binding."),
        ),
    },
    "lock-contention": {
        "torch": (
            ("Hold the lock for a shorter time: copy the data, release the lock, then work on the "
            "copy; or hand the data over with queue.SimpleQueue."),
            "Move pure Python work from threads to a process: threads share the interpreter.",
        ),
    },
    "argument-checks": {
        "torch": (
            ("When the program works, switch the checks off before the loop: "
            "torch.distributions.Distribution.set_default_validate_args(False). A NaN among the "
            "parameters then raises no error."),
        ),
    },
    "recomputation": {
        "torch": (
            ("If memory allows, call torch.utils.checkpoint for fewer layers, or for none: those "
            "keep their activations from forward to backward."),
        ),
        "transformers": (
            f"If memory allows, {HF}(gradient_checkpointing=False).",
        ),
    },
    "forward-share": {
        "torch": (
            ("Distillation, quantization, a smaller architecture, AMP, torch.compile; "
            "checkpointing trades time for memory."),
        ),
    },
    "backward-share": {
        "torch": (
            ("Look for a memory bottleneck, gradient accumulation or synchronization within "
            "backward; recomputation (torch.utils.checkpoint) is a known reason."),
        ),
    },
    "all-reduce-share": {
        "torch": (
            ("DistributedDataParallel(gradient_as_bucket_view=True, bucket_cap_mb=100 (default "
            "25)), a faster interconnect, fewer synchronizations (no_sync() while "
            "accumulating)."),
        ),
        "lightning": (
            ("DDPStrategy(gradient_as_bucket_view=True, bucket_cap_mb=100 (default 25)), "
            "Trainer(accumulate_grad_batches=...), a faster interconnect."),
        ),
        "transformers": (
            (f"{HF}(ddp_bucket_cap_mb=100, gradient_accumulation_steps=...), "
            "gradient_as_bucket_view=True where the model is wrapped, a faster interconnect."),
        ),
        "accelerate": (
            ("DistributedDataParallelKwargs(gradient_as_bucket_view=True, bucket_cap_mb=100 "
            "(default 25)), a faster interconnect."),
        ),
    },
    "sharding-share": {
        "torch": (
            ("If these are parameters that FSDP or ZeRO shards: do not shard them if they fit into "
            "a GPU's memory; else shard within a machine only (FSDP's HYBRID_SHARD), and wrap "
            "larger modules: fewer, larger exchanges."),
            "A faster interconnect.",
        ),
    },
    "gpu-throttled": {
        "torch": (
            ("Heat: run nvidia-smi -q -d TEMPERATURE,PERFORMANCE during the training; check fans, "
            "air flow, dust and neighbouring devices, or use another machine."),
            ("Power: nvidia-smi -q -d POWER shows the limit; nvidia-smi -pl raises it, if supply "
            "and cooling allow. A power brake comes from the machine's power supply."),
        ),
    },
    "imbalance": {
        "torch": (
            ("Give all ranks equal work: batches of similar length, a sampler that balances them; "
            "look at what the slowest rank does differently."),
        ),
    },
    "step-time-variation": {
        "torch": (
            "Look at what the longest steps do that the others do not.",
        ),
    },
    "gpu-utilization": {
        "torch": (
            ("Look at what the training thread does while the GPU is idle; larger batches, "
            "a faster input pipeline, torch.compile."),
        ),
        "lightning": ("Larger batches, a faster input pipeline, torch.compile(model).",),
        "transformers": (
            (f"{HF}(per_device_train_batch_size=..., dataloader_num_workers=..., "
            "torch_compile=True)."),
        ),
    },
    "gpu-memory-low": {
        "torch": ("Raise the batch size, until 85 to 95 % of the memory is used.",),
        "lightning": (
            ("Raise the batch size; lightning.pytorch.tuner.Tuner(trainer).scale_batch_size() "
            "finds it."),
        ),
        "transformers": (
            f"{HF}(per_device_train_batch_size=...) higher.",
        ),
    },
    "gpu-memory-high": {
        "torch": (
            ("A smaller batch with gradient accumulation, activation checkpointing "
            "(torch.utils.checkpoint), mixed precision (AMP)."),
        ),
        "lightning": (
            ('A smaller batch with Trainer(accumulate_grad_batches=...), precision="bf16-mixed", '
            "activation checkpointing."),
        ),
        "transformers": (
            (f"{HF}(per_device_train_batch_size=..., gradient_accumulation_steps=..., "
            "gradient_checkpointing=True, bf16=True)."),
        ),
        "accelerate": (
            (
                "A smaller batch, activation checkpointing, "
                'Accelerator(gradient_accumulation_steps=..., mixed_precision="bf16").'
            ),
        ),
    },
    "memory-leak": {
        "torch": (
            ("Store loss.detach() or loss.item(), because the loss keeps its whole graph alive; "
            "empty lists that grow; check hooks and caches."),
        ),
    },
    "memory-fragmentation": {
        "torch": (
            ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; batches of few different "
            "shapes; torch.cuda.empty_cache() sparingly."),
        ),
    },
    "small-batch": {
        "torch": (
            ("Raise the batch size (or the tokens per batch). Gradient accumulation does not help "
            "here, because its batches stay small."),
            "torch.compile merges operators, so that fewer calls remain.",
        ),
        "transformers": (
            f"{HF}(per_device_train_batch_size=...) higher: more tokens per batch.",
        ),
    },
    "cuda-graphs": {
        "torch": ('torch.compile(mode="reduce-overhead") replays kernels as CUDA graphs.',),
        "transformers": (
            (f'{HF}(torch_compile=True, torch_compile_mode="reduce-overhead") replays kernels as '
            "CUDA graphs."),
        ),
    },
    "small-kernels": {
        "torch": (
            "Fuse them: torch.compile, a fused optimizer (fused=True); raise the batch size.",
        ),
    },
    "small-kernels-unfusable": {
        "torch": ("Fuse them: torch.compile; raise the batch size.",),
    },
    "occupancy": {
        "torch": (
            ("A larger batch, larger micro-batches, gradient accumulation in fewer and larger "
            "parts; torch.compile."),
        ),
    },
    "blocks-per-sm": {
        "torch": ("A larger batch or fused kernels: more blocks per launch.",),
    },
    "attention-unfused": {
        "torch": (
            ("torch.nn.functional.scaled_dot_product_attention (flash attention) instead of "
            "bmm, softmax, bmm; check by the kernels' names that it is used, and that "
            "bucketing keeps padding small."),
        ),
        "transformers": (
            ('from_pretrained(attn_implementation="sdpa" or "flash_attention_2"); check by the '
            "kernels' names that flash attention is used, and that bucketing keeps padding small."),
        ),
    },
    "kernel-launch-overhead": {
        "torch": (
            ('Operator fusion: torch.compile(mode="reduce-overhead") replays CUDA graphs; larger '
            "batches; is gradient checkpointing needed?"),
        ),
        "transformers": (
            (f'{HF}(torch_compile=True, torch_compile_mode="reduce-overhead"); is '
            "gradient_checkpointing needed?"),
        ),
    },
    "mixed-precision-scaler": {
        "torch": (
            "bfloat16 needs no scaler: torch.autocast(dtype=torch.bfloat16).",
            ("Else torch.amp.GradScaler(growth_interval=4000) (default 2000): fewer steps overflow "
            "and are skipped."),
        ),
        "lightning": ('Trainer(precision="bf16-mixed") needs no scaler.',),
        "transformers": (f"{HF}(bf16=True, fp16=False) needs no scaler.",),
        "accelerate": (
            'Accelerator(mixed_precision="bf16") needs no scaler.',
            ("Else GradScalerKwargs(growth_interval=4000) (default 2000): fewer steps overflow and "
            "are skipped."),
        ),
    },
}  # fmt: skip


_FLOAT16 = (("bf16-mixed", "16-mixed"), ("bf16", "fp16"), ("bfloat16", "float16"))


def in_float16(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return fixes for a GPU without bfloat16."""
    for name, instead in _FLOAT16:
        texts = tuple(text.replace(name, instead) for text in texts)
    return texts


def fixes(rule: str, framework: str) -> tuple[str, ...]:
    """Return the sentences for a rule under a trainer."""
    of_rule = _FIXES[rule]
    return of_rule.get(framework, of_rule["torch"])
