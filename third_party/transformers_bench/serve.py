"""A process that trains and decodes with PyTorch and `transformers`, asked in lines of JSON. See README.md.

A request is one line {"do": NAME, ...}, its answer one line: an object, or {"error": TEXT}. Nothing else goes to the
standard output.
"""

import itertools
import json
import os
import sys
import time

import torch
import transformers

ATTENTION = ("sdpa", "eager")
EXPERTS = {"step": ("grouped_mm", "eager"), "generate": ("grouped_mm", "batched_mm", "eager")}


class Served:
    """One model at a time: `open` replaces it."""

    def __init__(self) -> None:
        self.model = self.optimizer = self.ids = self.rows = None
        self.weights = []
        self.clip = 0.0

    def open(self, folder: str, threads: int, lr: float, b1: float, b2: float, eps: float, decay: float, clip: float):
        torch.set_num_threads(threads)
        options = {"dtype": torch.float32, "output_loading_info": True}
        self.model, report = transformers.AutoModelForCausalLM.from_pretrained(folder, **options)
        if wrong := {kind: names for kind, names in report.items() if names}:
            raise ValueError(f"{folder}: {wrong}")
        # Without ids of its own the library warns at every call; no id ends a text here.
        self.model.generation_config = transformers.GenerationConfig(pad_token_id=0, eos_token_id=None)
        parameters = self.model.parameters()
        self.optimizer = torch.optim.AdamW(parameters, lr, (b1, b2), eps, weight_decay=decay, fused=True)
        self.clip = clip
        return {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "threads": torch.get_num_threads(),
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
        }

    def give(self, ids: list[list[int]]):
        self.ids = torch.tensor(ids)
        return {}

    def choose(self, work: str, new: int = 0):
        """Seconds of every implementation of attention and experts, the better of two tries; the fastest stays."""
        sparse = hasattr(self.model.config, "num_experts")
        seconds = {}
        for attention, experts in itertools.product(ATTENTION, EXPERTS[work] if sparse else ("",)):
            self.use(attention, experts)
            seconds[f"{attention} {experts}".strip()] = min(self._seconds(work, new) for _ in range(2))
        best = min(seconds, key=seconds.get)
        self.use(*best.split(" "))
        return {"seconds": seconds, "best": best}

    def use(self, attention: str, experts: str = ""):
        self.model.set_attn_implementation(attention)
        if experts:
            self.model.set_experts_implementation(experts)
        return {}

    def compile(self):
        self.model.forward = torch.compile(self.model.forward)
        return {}

    def step(self):
        """One update; the loss is that of the weights before it."""
        loss = self._backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        return {"loss": loss}

    def generate(self, new: int, greedy: bool):
        self.model.eval()
        drawing = {"do_sample": False} if greedy else {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
        mask = torch.ones_like(self.ids)
        with torch.inference_mode():
            ids = self.model.generate(self.ids, attention_mask=mask, max_new_tokens=new, **drawing)
        return {"ids": ids[:, self.ids.shape[1] :].tolist()}

    def matrices(self, rows: int, count: int, d_in: int, d_out: int):
        """What `multiply` works on, laid out as the weights of a linear layer."""
        self.rows, self.weights = torch.randn(rows, d_in), [torch.randn(d_out, d_in) for _ in range(count)]
        return {}

    def multiply(self, repeats: int):
        with torch.inference_mode():
            for _ in range(repeats):
                for weight in self.weights:
                    torch.nn.functional.linear(self.rows, weight)
        return {}

    def _backward(self) -> float:
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model(input_ids=self.ids, labels=self.ids, use_cache=False).loss
        loss.backward()
        return loss.item()

    def _seconds(self, work: str, new: int) -> float:
        begin = time.perf_counter()
        if work == "step":
            self._backward()
        else:
            self.generate(new, greedy=False)
        return time.perf_counter() - begin


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed goes where warnings go
    transformers.logging.set_verbosity_error()
    served = Served()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(served, request.pop("do"))(**request)
        except Exception as error:  # told to who asked, whose business it is
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
