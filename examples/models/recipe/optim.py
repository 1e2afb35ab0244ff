"""The optimiser: Muon for the matrices inside the blocks, AdamW for the rest.

Muon takes the running average of a matrix's gradients and replaces it by the nearest
orthogonal matrix before stepping, so that weak directions move as far as strong ones.
On small transformers it usually needs clearly fewer tokens than AdamW alone.
"""
import torch


def orthogonal(g, steps=5):
    """Pushes all singular values of g towards 1 without computing them.

    Newton-Schulz: each step applies the odd polynomial a*s + b*s^3 + c*s^5 to every
    singular value s at once.  These coefficients are steep at 0 and only bring the
    values into about 0.7..1.2; that is good enough and takes five steps.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g / (g.norm() + 1e-7)  # no singular value is above 1 now
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = x.t()
    for _ in range(steps):
        xx = x @ x.t()
        x = a * x + (b * xx + c * xx @ xx) @ x
    return x.t() if tall else x


class Optimizer:
    def __init__(self, model, lr_matrix, lr_rest, decay, betas=(0.9, 0.98)):
        self.lr_matrix, self.lr_rest, self.decay = lr_matrix, lr_rest, decay
        matrices, embeddings, vectors = [], [], []
        for name, p in model.named_parameters():
            if p.ndim == 1:
                vectors.append(p)
            elif name.startswith("h."):
                matrices.append((name, p))
            else:
                embeddings.append(p)
        self.matrices = matrices
        self.momentum = [torch.zeros_like(p) for _, p in matrices]
        # no weight decay for embeddings, biases and LayerNorm gains
        self.adam = torch.optim.AdamW(embeddings + vectors, lr=lr_rest,
                                      betas=betas, weight_decay=0.0)

    @torch.no_grad()
    def step(self, scale):
        """One update from the gradients in .grad; scale multiplies both rates."""
        for group in self.adam.param_groups:
            group["lr"] = self.lr_rest * scale
        self.adam.step()
        lr = self.lr_matrix * scale
        for (name, p), m in zip(self.matrices, self.momentum):
            m.mul_(0.95).add_(p.grad)
            ahead = p.grad + 0.95 * m  # Nesterov: look one step ahead
            # c_attn is three matrices side by side, each gets its own update
            parts = ahead.chunk(3, dim=1) if "c_attn" in name else [ahead]
            update = torch.cat([orthogonal(g) for g in parts], dim=1)
            n_in, n_out = parts[0].shape
            p.mul_(1 - lr * self.decay)
            p.add_(update, alpha=-lr * max(1.0, n_out / n_in) ** 0.5)
        for group in self.adam.param_groups:
            for p in group["params"]:
                p.grad = None
        for _, p in self.matrices:
            p.grad = None


def schedule(step, total, warmup, flat=0.3):
    """Warm-up, then constant, then straight down to 0."""
    down = total * (1 - flat)
    return min((step + 1) / warmup, (total - step) / down, 1.0)
