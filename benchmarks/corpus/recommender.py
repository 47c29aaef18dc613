"""A recommender with two workers; each sample computes features of its user from a pandas frame.

Right: data-loading.
Fix: data-loading --table.
"""

from __future__ import annotations

import pandas as pd
import torch
from kit import flag, mlp, start, update
from torch import nn
from torch.utils.data import DataLoader, Dataset

USERS, ITEMS, ROWS = 200, 300, 1600


class Ratings(Dataset):
    """Ratings with statistics of the user's other ratings."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame
        self.table = None
        if flag("--table"):
            stats = frame.groupby("user")["rating"].agg(["mean", "std", "count"]).loc[frame["user"]]
            self.table = torch.tensor(stats.to_numpy(), dtype=torch.float32).nan_to_num()
            self.ids = torch.tensor(frame[["user", "item"]].to_numpy())
            self.target = torch.tensor(frame["rating"].to_numpy(), dtype=torch.float32)

    def __len__(self) -> int:
        return len(self.frame)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        if self.table is not None:
            return self.ids[i], self.table[i], self.target[i]
        row = self.frame.iloc[i]
        ids = torch.tensor([int(row["user"]), int(row["item"])])
        return ids, self.features(row["user"]), row["rating"]

    def features(self, user: float) -> torch.Tensor:  # the cause
        own = self.frame[self.frame["user"] == user]["rating"]  # the cause
        return torch.tensor([own.mean(), own.std(), float(len(own))]).float().nan_to_num()


class Recommender(nn.Module):
    """Embeddings of user and item beside the features."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(USERS, 32), nn.Embedding(ITEMS, 32)
        self.head = mlp(67, 256, 256, 1)

    def forward(self, ids: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        parts = self.users(ids[:, 0]), self.items(ids[:, 1]), features
        return self.head(torch.cat(parts, dim=1)).squeeze(1)


def main() -> None:
    start()
    frame = pd.DataFrame(
        {
            "user": torch.randint(0, USERS, (ROWS,)).numpy(),
            "item": torch.randint(0, ITEMS, (ROWS,)).numpy(),
            "rating": torch.rand(ROWS).numpy() * 5,
        }
    )
    loader = DataLoader(
        Ratings(frame), batch_size=64, shuffle=True, num_workers=2, persistent_workers=True
    )
    model = Recommender()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for _ in range(4):
        for ids, features, rating in loader:
            update((model(ids, features) - rating.float()).square().mean(), optimizer)


if __name__ == "__main__":
    main()
