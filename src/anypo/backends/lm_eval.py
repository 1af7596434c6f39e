"""Language policies in the evaluation harness lm-eval: its `LM` over ours."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from lm_eval import simple_evaluate, utils
from lm_eval.api.model import TemplateLM
from lm_eval.tasks import TaskManager

from anypo.backends.language_sample import Sample, sample
from anypo.backends.transformers import HFPolicy
from anypo.core.errors import UsageError, nearest
from anypo.core.rng import key

TOKENS = 8192
"""Tokens of one forward pass."""

LONGEST = 256
"""Tokens of an answer where a task does not say; the harness's own default."""

NAMES = ("max_gen_toks", "max_new_tokens", "max_tokens")
IDLE = {"top_p": 1, "top_k": 0, "min_p": 0, "num_beams": 1, "repetition_penalty": 1}
"""Options of a task's generation, and the value at which they change nothing."""

Pair = tuple[Any, list[int], list[int]]


class AnypoLM(TemplateLM):
    """A policy as a model of lm-eval: the same weights, precision and distribution as in training.

    Contexts reach the model as the harness writes them, without a chat template unless it is asked
    to apply one. Scores are at temperature 1, whatever the policy trains at.

    Parameters
    ----------
    policy : a language policy.
    seed : of what tasks sample (most generate greedily).

    Raises `UsageError` for a policy without text, and for a task that wants top-p, top-k or beams.
    """

    def __init__(self, policy: HFPolicy, seed: int = 0) -> None:
        super().__init__()
        if getattr(policy, "kind", "") != "language":
            raise UsageError(f"lm-eval asks for text, and {policy.name} writes none")
        self.policy, self.seed, self.drawn = policy, seed, 0
        self.tokenizer: Any = policy.tokenizer
        self._device = policy.net.device

    # ── text ────────────────────────────────────────────────────────────────────────────────────

    @property
    def eot_token_id(self) -> int:
        """The token that ends a text."""
        return self.tokenizer.eos_token_id

    @property
    def prefix_token_id(self) -> int:
        """What stands before a text without a context: the token that begins a text, else ends."""
        first = self.tokenizer.bos_token_id
        return self.eot_token_id if first is None else first

    @property
    def tokenizer_name(self) -> str:
        """A name under which requests are kept apart."""
        return self.policy.name.replace("/", "__")

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **kwargs: Any
    ) -> list[int]:
        """Token ids, with what the tokenizer puts before a text unless it stands there already."""
        if add_special_tokens is None:
            first = self.tokenizer.bos_token
            add_special_tokens = not (first and string.startswith(first))
        return self.tokenizer(string, add_special_tokens=add_special_tokens)["input_ids"]

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """The prompt of a chat as the model's own template writes it."""
        if not self.tokenizer.chat_template:
            raise UsageError(f"{self.policy.name} has no chat template: leave it out")
        return self.tokenizer.apply_chat_template(
            chat_history,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
        )

    # ── likelihoods ─────────────────────────────────────────────────────────────────────────────

    def _loglikelihood_tokens(self, requests: Sequence[Pair], **kwargs: Any) -> list[Any]:
        """Log-likelihood of continuations, and whether each token of one is the likeliest."""
        context = self.policy.net.context
        rows = [((before + after)[-(context + 1) :], len(after)) for _, before, after in requests]
        order = sorted(range(len(rows)), key=lambda i: rows[i][0])  # neighbours share beginnings
        found: list[Any] = [None] * len(rows)
        for lot in _lots(order, [len(tokens) for tokens, _ in rows]):
            for i, value in zip(lot, self._score([rows[i] for i in lot])):
                found[i] = value
                if requests[i][0] is not None:
                    self.cache_hook.add_partial("loglikelihood", requests[i][0], value)
        return found

    @torch.no_grad()
    def _score(self, rows: list[tuple[list[int], int]]) -> list[tuple[float, bool]]:
        net = self.policy.net
        hidden, slots = net.hidden([tokens[:-1] for tokens, _ in rows])
        readout, found = net.readout(), []
        for (tokens, after), slot in zip(rows, slots):
            wanted = torch.tensor(tokens[-after:], device=net.device)
            logp = torch.log_softmax(readout(hidden[slot[-after:].to(net.device)]), -1)
            likeliest = bool((logp.argmax(-1) == wanted).all())
            found.append((float(logp.gather(-1, wanted[:, None]).sum()), likeliest))
        return found

    def loglikelihood_rolling(
        self, requests: Sequence[Any], disable_tqdm: bool = False
    ) -> list[float]:
        """Log-likelihood of whole texts; what exceeds the context is cut into windows."""
        texts = [request.args[0] for request in requests]
        pairs: list[Pair] = []
        owner: list[int] = []
        for number, text in enumerate(texts):
            for window in self._windows(text):
                pairs.append((None, *window))
                owner.append(number)
        sums = [0.0] * len(texts)
        for number, (value, _) in zip(owner, self._loglikelihood_tokens(pairs)):
            sums[number] += value
        for text, value in zip(texts, sums):
            self.cache_hook.add_partial("loglikelihood_rolling", (text,), value)
        return sums

    def _windows(self, text: str) -> Iterator[tuple[list[int], list[int]]]:
        windows = utils.get_rolling_token_windows(
            token_list=self.tok_encode(text),
            prefix_token=self.prefix_token_id,
            max_seq_len=self.policy.net.context,
            context_len=1,
        )
        return map(utils.make_disjoint_window, windows)

    # ── answers ─────────────────────────────────────────────────────────────────────────────────

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Answers up to an end token or to one of a task's stop texts; greedy unless it samples."""
        found = [""] * len(requests)
        groups: dict[str, list[int]] = {}
        for number, request in enumerate(requests):
            groups.setdefault(json.dumps(request.args[1], sort_keys=True), []).append(number)
        for numbers in groups.values():
            options = dict(requests[numbers[0]].args[1])
            texts = self._answers([requests[i].args[0] for i in numbers], options)
            for i, text in zip(numbers, texts):
                found[i] = text
                self.cache_hook.add_partial("generate_until", requests[i].args, text)
        return found

    def _answers(self, contexts: list[str], options: dict[str, Any]) -> list[str]:
        until = options.pop("until", None) or []
        stops = [until] if isinstance(until, str) else list(until)
        most = next((options[name] for name in NAMES if options.get(name)), LONGEST)
        temperature = _temperature(options)
        room = self.policy.net.context
        most = min(int(most), room - 1)
        drawn = []
        for context in contexts:
            ids = self.tok_encode(context)[-(room - most) :] or [self.prefix_token_id]
            self.drawn += 1
            drawn.append(Sample(ids, key(self.seed, "lm-eval", self.drawn), most))
        sample(self.policy.net, drawn, self.policy.ends, temperature)
        texts = [self.tokenizer.decode(one.spoken, skip_special_tokens=True) for one in drawn]
        return [_cut(text, stops) for text in texts]


def _lots(order: list[int], sizes: list[int]) -> list[list[int]]:
    """Neighbours together, so that a lot has at most `TOKENS` tokens, or is alone."""
    lots: list[list[int]] = []
    used = 0
    for i in order:
        if not lots or used + sizes[i] > TOKENS:
            lots.append([])
            used = 0
        lots[-1].append(i)
        used += sizes[i]
    return lots


def _temperature(options: dict[str, Any]) -> float:
    """0 unless a task samples; refuses what would change the sampled distribution otherwise."""
    temperature = float(options.get("temperature") or 0)
    if options.get("do_sample", temperature > 0) is False:
        return 0.0
    for name, idle in IDLE.items():
        if options.get(name, idle) not in (idle, None):
            raise UsageError(
                f"the task samples with {name}={options[name]}, and anypo samples the policy as it "
                "is: take it out of the task's generation_kwargs"
            )
    return temperature or 1.0


def _cut(text: str, stops: list[str]) -> str:
    """The text up to the first stop."""
    for stop in stops:
        text = text.split(stop)[0] if stop else text
    return text


# ── the harness ──────────────────────────────────────────────────────────────────────────────────


def run(
    policy: HFPolicy,
    tasks: Sequence[str],
    *,
    include: str = "",
    n: int = 0,
    chat: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """Evaluate a policy on tasks of lm-eval; returns the harness's own results.

    Parameters
    ----------
    policy : a language policy.
    tasks : names of tasks, of groups or of tags, those of `include` among them.
    include : a folder of further tasks in YAML.
    n : most questions of each task (0 = all).
    chat : whether contexts go through the policy's chat template.
    seed : of the choice of examples in a context, and of samples.

    Raises `UsageError` for unknown tasks, with the nearest names, and for a data set that cannot be
    reached.
    """
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    manager = _manager(tasks, include)
    seeds = dict.fromkeys(
        ("random_seed", "numpy_random_seed", "torch_random_seed", "fewshot_random_seed"), seed
    )
    try:
        with torch.random.fork_rng(devices=[]):
            found = simple_evaluate(
                model=AnypoLM(policy, seed),
                tasks=list(tasks),
                task_manager=manager,
                limit=n or None,
                apply_chat_template=chat,
                bootstrap_iters=1000,
                log_samples=False,
                **seeds,
            )
    except (ConnectionError, FileNotFoundError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UsageError(
            f"a data set of {', '.join(tasks)} cannot be reached ({reason}): fetch it where there "
            "is a network, or name tasks whose data lie on this machine with --lm-eval-include"
        ) from None
    assert found is not None  # only other ranks get none
    return found


def _manager(tasks: Sequence[str], include: str) -> TaskManager:
    """Who knows these tasks; the harness's own, some thousands, are listed only where needed."""
    if include and not Path(include).is_dir():
        raise UsageError(f"{include} is no folder: --lm-eval-include names one with tasks in YAML")
    if include:
        manager = TaskManager(include_path=include, include_defaults=False)
        if set(tasks) <= set(manager.all_tasks):
            return manager
    manager = TaskManager(include_path=include or None)
    for name in tasks:
        if name not in manager.all_tasks:
            near = nearest(name, manager.all_tasks)
            raise UsageError(f"lm-eval has no task {name!r}{near or ': see lm-eval ls tasks'}")
    return manager
