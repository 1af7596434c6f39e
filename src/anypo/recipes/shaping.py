"""Rewards of length, place and rarity, and credit of the parts of an answer."""

from __future__ import annotations

from typing import Literal

from anypo.core.errors import UsageError
from anypo.core.method import bounded, method
from anypo.core.neutral import Adam, Groups, Mean, Return
from anypo.core.recipe import Recipe
from anypo.pieces.advantage.baseline import Baseline
from anypo.pieces.advantage.gae import Whiten
from anypo.pieces.advantage.spots import Economy, Excess, Transition
from anypo.pieces.aggregate.subset import Subset
from anypo.pieces.ratio.ratio import Ratio
from anypo.pieces.regularizer.entropy import Entropy
from anypo.pieces.reward.overlong import Overlong
from anypo.pieces.reward.peers import Helpful, Rare, Verdict
from anypo.pieces.reward.place import Place
from anypo.pieces.reward.span import Near, Shorter
from anypo.pieces.sampling.condense import Condense
from anypo.pieces.sampling.hint import Hint
from anypo.pieces.sampling.split import Split
from anypo.pieces.sampling.tree import Tree
from anypo.pieces.surrogate.clip import Clip
from anypo.recipes.clipping import UNCLIPPED
from anypo.recipes.group_relative import dapo, grpo


@method(paper="2510.22543", title="FAPO (flawed-aware)")
def fapo(
    group: int = 8,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    penalty: float = 1.0,
    overlong: float = 0.5,
) -> Recipe:
    """Right answers whose reasoning a judge calls flawed lose a fixed amount.

    `r = 1 − λ·flawed` if right, `−1` if wrong: a flawed answer at 0 is above its group's mean while
    fewer of the others are right than wrong, and below it later. Clip and token mean of `dapo`.

    Parameters: `group` (8), `clip_low` 0.2, `clip_high` 0.28, `penalty` (λ, 1), `overlong` (share
    of the budget over which its penalty grows: 4096 of 8192; 0 = off). Needs the judge's flag,
    which the reward reports as `flawed`.
    Deviations: none known. An answer is right if its reward is at least 1. How the judge itself is
    trained is not part of the method. Reference: 2510.22543.
    """
    late = (Overlong(overlong),) if overlong else ()
    return grpo(group, beta=0).but(
        reward=(Verdict(fact="flawed", penalty=penalty), *late),
        surrogate=Clip(clip_low, clip_high),
        aggregate=Mean("step", "batch"),
    )


@method(paper="2507.15758", title="LAPO (length-adaptive)")
def lapo(
    group: int = 8,
    clip: float = 0.2,
    beta: float = 0.04,
    switch: int = 240,
    range_weight: float = 0.7,
    fall: float = 100.0,
    target_weight: float = 0.8,
    spread: float = 120.0,
) -> Recipe:
    """First right answers of a middling length earn more, then those near a length that is asked
    for.

    Until iteration `switch`, `r = acc + w_1·acc·max(0, 1 − d/fall)`, d the distance to the range
    from the 30th to the 70th percentile of the group's right lengths; each prompt keeps its median.
    Then the prompt states that length n*, and `r = acc + w_2·acc·exp(−(n − n*)²/(2·spread²))`; n*
    is lowered where right answers get shorter. GRPO otherwise.

    Parameters: `group`, `clip`, `beta` (as in `grpo`), `switch` (240: ours), `range_weight` (w_1,
    0.7), `fall` (100 tokens), `target_weight` (w_2, 0.8), `spread` (120 tokens).
    Deviations: the code returns every reward twice, shaped and bare, which is left out. How the
    prompt words the length is ours (see `Hint`). Whether a range of one length pays nothing when
    several answers have it is unverified. Reference: 2507.15758.
    """
    near = Near(target_weight, 50.0, 50.0, slope=0.0, sigma=spread)
    return (
        grpo(group, clip, beta)
        .but(reward=(Near(range_weight, slope=fall),))
        .then(at=switch, reward=(near,), sampling=Groups(group) >> Hint())
    )


@method(paper="2506.14755", title="LC-R1")
def lc_r1(
    group: int = 8,
    clip: float = 0.2,
    beta: float = 0.04,
    len_coef: float = 1.0,
    comp_coef: float = 1.0,
    full_reward: float = 1.0,
) -> Recipe:
    """Right answers are cut where they stop to add anything, short ones earn more, and a token
    learns to stop.

    `x_i = r_i + c·(1 − n_i/(max_{right j} n_j + 1e-4))` in groups with a right answer,
    `A_i = x_i − mean_g x`; on the token that ends the thought of a right answer
    `A += a·(1 − V/(T + 1e-4))`, or −a if V = 0. GRPO otherwise.

    Parameters: `group`, `clip`, `beta` (as in `grpo`: unverified), `len_coef` (c, 1), `comp_coef`
    (a, 1), `full_reward` (reward of a right answer: 1; 2 in the paper, whose reward has a part for
    the format). A reward reports `think_end`, `think_length` (T) and `valid_length` (V): see
    `Condense`.
    Deviations: none in the formulas. That n counts the shortened answers is our reading. The
    shortened text was not sampled; as published, its ratio starts at 1. Reference: 2506.14755.
    """
    return grpo(group, clip, beta).but(
        sampling=Groups(group) >> Condense(full_reward),
        reward=(Shorter(bounded("len_coef", len_coef), least=full_reward, eps=1e-4),),
        advantage=Baseline("traj", "group") + Economy(comp_coef, full_reward),
        update=Adam(max_grad_norm=0.1),
    )


@method(paper="2506.02355", title="Unlikeliness reward")
def unlikeliness_reward(
    group: int = 32,
    clip: float = 0.2,
    beta: float = 0.1,
    beta_rank: float = 0.25,
    epochs: int = 2,
    eps: float = 1e-6,
) -> Recipe:
    """The likelier a right answer was among its group, the less it earns.

    `r̃_i = r_i·(1 − β_rank·rank_i/G)`, rank_i the number of the group's answers with a smaller mean
    log-probability; z-score of r̃ within the group. GRPO otherwise, several epochs per batch.

    Parameters: `group` (32), `clip`, `beta` (KL, 0.1), `beta_rank` (0.25), `epochs` (2), `eps`
    (1e-6).
    Deviations: these are the code's ranks; the paper has the likeliest answer lose all of β_rank,
    (G − rank)/G (from memory). See `Rare` on ties. Negative rewards would shrink towards 0.
    Reference: Rewarding the Unlikely, 2506.02355.
    """
    return grpo(group, clip, beta, eps).but(reward=(Rare(beta_rank),), update=Adam(epochs))


@method(paper="2510.20150", title="Rank-GRPO")
def rank_grpo(
    group: int = 8,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    beta: float = 1e-3,
    items: int = 20,
    credit: Literal["suffix", "item"] = "suffix",
    eps: float = 1e-4,
    marker: str = "\n",
) -> Recipe:
    """Every item of a list has its own return, its own group statistics and its own ratio.

    `R_ik = Σ_{j≥k} hit_ij/log2(j + 1)`, `A_ik = (R_ik − mean_g R_·k)/(std_g R_·k + eps)`,
    `log ρ_ik` the mean of the item's token log-ratios; PPO's clip per token.

    Parameters: `group` (8), `clip_low`, `clip_high` (0.2), `beta` (1e-3), `items` (K, 20; what
    follows is one more item without a hit), `credit` (`suffix`, the text's, or `item`, the code's
    default `exp_inf`: `R_ik = hit_ik`), `eps` (1e-4), `marker` (text between items, a line break).
    A reward reports `hits`, a list of at most K numbers. Marker and end token are not trained.
    Deviations: the statistics of a place are over the answers that have an item there, where the
    code counts the others as 0. The optional rewards of the end token are left out.
    Reference: 2510.20150.
    """
    if credit not in ("suffix", "item"):
        raise UsageError(f"credit={credit!r}: it must be suffix or item")
    suffix, most = credit == "suffix", int(bounded("items", items, 1)) + 1
    within = "traj" if suffix else "segment"
    return grpo(group, beta=beta).but(
        sampling=Groups(group) >> Split(marker, most, bare=True),
        reward=(Place("hits", "log" if suffix else "off"),),
        advantage=Return(within=within) >> Whiten(("group", "stage"), eps, "segment"),
        ratio=Ratio("segment", mean=True),
        surrogate=Clip(clip_low, clip_high),
    )


@method(paper="2602.10231", title="Blockwise advantage estimation")
def blockwise_advantage(group: int = 32, clip: float = 0.2, marker: str = "\n\n") -> Recipe:
    """Every block of an answer has its own reward, baseline and mean; later ones are compared with
    blocks that began alike.

    `A^1_i = r^1_i − mean_g r^1`, `A^k_i = r^k_i − mean{r^k_j : j in g, z_j = z_i}` for k > 1, z an
    outcome of what came before; `L = −(1/B) Σ_i Σ_k (1/n_ik) Σ_{t in k} min(ρ·A^k, clip(ρ)·A^k)`.

    Parameters: `group` (32), `clip` (0.2, of `grpo`: unverified), `marker` (text between blocks, an
    empty line: ours). A reward reports `parts`, a reward for each block, and `stratum`, z: a label,
    or a list with one for each block.
    Deviations: a block alone in its stratum gets 0; the paper's rule for small strata is
    unverified. The optional deviation of a block is left out: `--recipe.advantage.scale std`.
    Reference: 2602.10231, read through notes of others.
    """
    return grpo(group, clip, beta=0).but(
        sampling=Groups(group) >> Split(marker, stratum="stratum"),
        reward=(Place("parts"),),
        advantage=Baseline("segment", ("group", "stage", "stratum")),
        aggregate=Mean("step", "segment") * Mean("traj", "batch"),
    )


@method(paper="2505.21178", title="ConciseR", kind="sketch")
def concise_r(
    group: int = 16,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    entropy: float = 1e-3,
    switch: int = 400,
    weight: float = 1.0,
) -> Recipe:
    """First solve, then be brief: length is rewarded only where all answers of a group are right.

    Until iteration `switch`: DAPO without its overlong penalty, with an entropy bonus. Then groups
    are no longer filtered, and in those that are all right `r_i = 1 + w·(1 − n_i/L)`; the z-score
    makes of any affine reward the same advantage.

    Parameters: `group` (16, of `dapo`), `clip_low` 0.2, `clip_high` 0.28 (DAPO's), `entropy`
    (coefficient, 1e-3), `switch` (400), `weight` (w, 1).
    Sketch: known are the two stages, the bonus, and that only groups of right answers count. The
    length reward (of the unused budget L), the entropy coefficient and the lengths of the stages
    are ours. Reference: 2505.21178, abstract and reviews; no training code.
    """
    brief = Shorter(bounded("weight", weight), "horizon", "solved")
    return (
        dapo(group, clip_low, clip_high, overlong=0)
        .but(regularize=(Entropy(entropy),))
        .then(at=switch, reward=(brief,), sampling=Groups(group))
    )


@method(paper="2506.07160", title="GCPO (GeometryZero)", kind="sketch")
def gcpo_geometry(
    group: int = 8,
    clip: float = 0.2,
    beta: float = 0.04,
    construction: float = 0.5,
    length: float = 0.1,
) -> Recipe:
    """An auxiliary construction is rewarded, or charged, as it helps or hurts on this prompt.

    `r_i = acc + w_a·s·x_i + w_l·(n_i/L − 1)`, x_i = 1 with a construction, `s = ±1` where the
    accuracy of the answers with one is above or below that of those without by more than 0.1 (the
    `band` of `Helpful`), else 0.

    Parameters: `group`, `clip`, `beta` (as in `grpo`), `construction` (w_a, 0.5), `length` (w_l,
    0.1; L is the budget). A reward reports `construction`.
    Sketch: known are the three values of s, the band, and a reward that grows with length. The
    paper contrasts two groups of answers, one asked for constructions and one without; here they
    are the two kinds within one group. All numbers and the length formula are ours.
    Reference: 2506.07160, reviews only.
    """
    longer = Shorter(-bounded("length", length), "horizon", "all")
    return grpo(group, clip, beta).but(reward=(Helpful("construction", construction), longer))


@method(paper="2603.00296", title="SwAP", kind="sketch")
def swap(
    group: int = 8,
    clip: float = 0.2,
    beta: float = 0.04,
    weight: float = 0.5,
    tau: float = 1.0,
    marker: str = "\n\n",
) -> Recipe:
    """What a right answer is too long is charged to its steps, most to those that mattered least.

    `A_it = z_g(r_i) − w·z_g(q_{i,k(t)})`, `q_ik = max(0, n_i − m)/m · softmax_k(−s_ik/tau)`, m the
    mean right length of the group, s the gain in log-probability of the right answer by step k.

    Parameters: `group`, `clip`, `beta` (as in `grpo`), `weight` (w, 0.5), `tau` (1), `marker` (text
    between steps, an empty line). A reward reports `importance`, the list of s.
    Sketch: known are the importance, a mass that is shared out against it, and one advantage made
    of outcome and process; the formulas and numbers are ours. The gains need passes that are forced
    to the right answer, which no policy here does: they must be reported. Reference: 2603.00296,
    abstract only.
    """
    charge = Excess(tau) >> Whiten("group", 1e-6, "segment")
    return grpo(group, clip, beta).but(
        sampling=Groups(group) >> Split(marker),
        advantage=Baseline("traj", "group", scale="std") + -bounded("weight", weight) * charge,
    )


@method(paper="2504.20834", title="S-GRPO (token subset)", kind="sketch")
def s_grpo_subset(
    group: int = 8,
    clip: float = 0.2,
    beta: float = 0.04,
    share: float = 0.4,
    first: int = 1,
    unbiased: bool = False,
) -> Recipe:
    """GRPO whose loss is that of a random part of each answer's tokens, to save memory.

    `L = (1/B) Σ_i (1/|T_i|) Σ_{t in T_i} [ −min(r·A, clip(r)·A) + β·k3 ]`, T_i the kept tokens.

    Parameters: `group`, `clip`, `beta` (as in `grpo`), `share` (of tokens kept at random, 0.4: the
    paper trains 30 to 50 %), `first` (tokens that are always kept, 1: ours), `unbiased` (kept
    tokens over their probability, and the whole length as divisor; ours, default no).
    Sketch: known are the random subset and its share; how it is drawn is from memory. For the same
    paper's second method see `t_spmo`. Reference: 2504.20834, abstract and introduction.
    """
    kept = Mean("step", "traj", "batch") * Subset(share, first, unbiased)
    return grpo(group, clip, beta).but(aggregate=kept)


@method(paper="2504.20834", title="T-SPMO", kind="sketch")
def t_spmo(group: int = 8, decay: float = 0.0) -> Recipe:
    """Credit only where the answers to a prompt part: the tokens of their tree of common
    beginnings.

    `A(v|p) = mean{r_i : p, v begins i} − mean{r_i : i goes on from p}`,
    `L = −(1/U) Σ_{(p, v)} ρ(v|p)·A(v|p)` over the U different transitions of all groups.

    Parameters: `group`, `decay` (weight decay, 0: the paper's is unknown).
    Sketch: the definition is from abstract and memory; the ratio in place of the probability, and
    U, which counts transitions without credit, are ours. Reference: 2504.20834.
    """
    return grpo(group, beta=0).but(
        sampling=Groups(group) >> Tree(),
        advantage=Transition(),
        surrogate=UNCLIPPED,
        aggregate=Mean("step", "edge", "batch"),
        update=Adam(weight_decay=bounded("decay", decay)),
    )


@method(paper="2603.06138", title="Partial policy gradient", kind="sketch")
def future_reward_subset(
    group: int = 1,
    plan: Literal["full", "greedy", "lookahead", "segment"] = "lookahead",
    gamma: float = 1.0,
    k: int = 2,
) -> Recipe:
    """REINFORCE in which a step counts only some of the rewards that follow it.

    `L = −(1/B) Σ_i Σ_t W_it·logp_it`, `W_t = Σ_{u in S_t} γ^{u−t} r_u` with S_t all later steps
    (`full`), the step alone (`greedy`), k steps (`lookahead`), or the rest of its segment.

    Parameters: `group` (1), `plan`, `gamma` (1), `k` (2 rewards, the step's own included). Segments
    are those of the data, or lines. Rewards must be dense: one on the last step reaches few.
    Sketch: the subsets are those of the abstract; whether k counts the step itself, baselines, and
    defaults are unverified. A step is a turn where the policy acts once per turn, a token in text.
    Reference: 2603.06138.
    """
    if plan not in ("full", "greedy", "lookahead", "segment"):
        raise UsageError(f"plan={plan!r}: it must be full, greedy, lookahead or segment")
    ahead = {"greedy": 1, "lookahead": int(bounded("k", k, 1))}.get(plan, 0)
    if plan == "segment":
        split = Groups(group) >> Split()
        return Recipe(sampling=split, advantage=Return(gamma, within="segment"))
    return Recipe(sampling=Groups(group), advantage=Return(gamma, ahead))
