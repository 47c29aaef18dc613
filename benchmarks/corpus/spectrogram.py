"""The dataset computes a spectrogram for each sample, in the training process.

Right: data-loading.
Fix: data-loading --workers 1.
"""

from __future__ import annotations

import torch
from kit import mlp, number, start, update
from torch.utils.data import DataLoader, Dataset


class Sounds(Dataset):
    """Sums of waves, and the logarithm of their spectra."""

    def __init__(self) -> None:
        self.window = torch.hann_window(256)
        self.waves = torch.randn(512, 8192)

    def __len__(self) -> int:
        return len(self.waves)

    def __getitem__(self, i: int) -> torch.Tensor:
        spectrum = torch.stft(self.waves[i], 256, 128, window=self.window, return_complex=True)
        return spectrum.abs().clamp(min=1e-5).log().mean(1)


def main() -> None:
    start()
    workers = number("--workers", 0)
    loader = DataLoader(
        Sounds(), batch_size=32, num_workers=workers, persistent_workers=workers > 0
    )
    model = mlp(129, 1024, 1024, 129)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for _ in range(6):
        for x in loader:
            update((model(x) - x).square().mean(), optimizer)


if __name__ == "__main__":
    main()
