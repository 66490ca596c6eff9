"""Prints one episode whole, as the policy read and wrote it, with the hidden verdicts beside it.

python experiments/show.py runs/wirl                 names of episodes that can be shown
python experiments/show.py runs/wirl rl-00012        one of them
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mlexpert.harness.journal import Event, replay
from mlexpert.rollout import tokenizer as tokenizers
from mlexpert.rollout.tokenizer import Tokenizer


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    run = Path(sys.argv[1])
    if not (run / "tokenizer.json").exists():
        sys.exit(f"error: {run} holds no tokenizer.json; name the workdir of a run")
    if len(sys.argv) == 2:
        print("\n".join(sorted(path.stem for path in (run / "episodes").glob("*.jsonl"))))
        return
    path = run / "episodes" / f"{sys.argv[2]}.jsonl"
    if not path.exists():
        sys.exit(f"error: {path} does not exist; without a name the episodes are listed")
    tokenizer = tokenizers.load(run / "tokenizer.json")
    print("\n".join(told(tokenizer, event) for event in replay(path)))


def told(tokenizer: Tokenizer, event: Event) -> str:
    """One event as text; what the policy never reads stands in [[double brackets]]."""
    if event["event"] == "turn":
        return tokenizer.decode(event["prompt"]) + tokenizer.decode(event["ids"])
    if event["event"] == "step" and event["tool"] == "execute_code":
        verdict, execution = event["verdict"], event["execution"]
        medal = ("no medal", "bronze", "silver", "gold")[verdict["medal"]]
        worth = f"{verdict['status']}, hidden score {verdict['score']}, {medal}"
        return f"[[ran {execution['wall_s']:.2f} s, {execution['status']}; {worth}]]"
    return f"[[{event['event']}: {event.get('tool', event.get('task', ''))}]]"


if __name__ == "__main__":
    main()
