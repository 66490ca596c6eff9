"""Run by another Python, one that has transformers: the logits of a folder on given ids.

python tests/model/transformers_logits.py IDS.npy OUT.npz FOLDER...
"""

import sys

import numpy as np
import torch
from transformers import AutoModelForCausalLM

ids = torch.from_numpy(np.load(sys.argv[1]))
found = {}
for folder in sys.argv[3:]:
    model, report = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    wrong = {kind: names for kind, names in report.items() if names}
    if wrong:
        sys.exit(f"{folder}: {wrong}")
    with torch.no_grad():
        found[folder] = model(ids).logits.numpy()
np.savez(sys.argv[2], **found)
