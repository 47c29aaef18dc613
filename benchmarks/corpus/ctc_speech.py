"""Speech with CTC; the dataset computes a spectrogram frame by frame for every sample.

Right: data-loading.
Fix: data-loading --once.
"""

from __future__ import annotations

import numpy as np
import torch
from kit import flag, start
from torch import nn
from torch.utils.data import DataLoader, Dataset


def spectrogram(wave: np.ndarray, size: int = 256, hop: int = 64) -> np.ndarray:  # the cause
    window = np.hanning(size)
    frames = []
    for at in range(0, len(wave) - size, hop):
        spectrum = np.fft.rfft(wave[at : at + size] * window)  # the cause
        frames.append(np.log1p(np.abs(spectrum) ** 2))
    return np.array(frames, dtype=np.float32)


class Utterances(Dataset):
    """Waves and their letters."""

    def __init__(self, count: int) -> None:
        draw = np.random.default_rng(0)
        self.waves = [draw.standard_normal(4096) for _ in range(count)]
        self.letters = [torch.tensor(draw.integers(1, 28, 8)) for _ in range(count)]
        self.ready = [spectrogram(w) for w in self.waves] if flag("--once") else None

    def __len__(self) -> int:
        return len(self.waves)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.ready[i] if self.ready else spectrogram(self.waves[i])  # the cause
        return torch.from_numpy(features), self.letters[i]


class Recognizer(nn.Module):
    """A recurrent network over the frames."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(129, 64, batch_first=True)
        self.head = nn.Linear(64, 28)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(x)[0]).log_softmax(-1)


def main() -> None:
    start()
    loader = DataLoader(Utterances(256), batch_size=16, shuffle=True)
    model, ctc = Recognizer(), nn.CTCLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for _ in range(4):
        for x, letters in loader:
            log_probs = model(x).transpose(0, 1)
            frames = torch.full((len(x),), len(log_probs))
            loss = ctc(log_probs, letters, frames, torch.full((len(x),), 8))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
