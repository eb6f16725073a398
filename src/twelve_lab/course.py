"""The lessons in reading order and the by-hand tasks, shared by pages and tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Step(NamedTuple):
    """A lesson: a notebook, with a module, a test and exercises if it has any.

    Attributes:
        number: Number in the file name of the notebook, such as "04" or "a1".
        stem: File name of its module, test and exercises, without number and extension.
        title: Short title, for use in a sentence.
        question: The question that the lesson answers.
        contract: Input axes and output axes, in words.
        part: Part of the course. The lessons of a part are adjacent.
        exports: Names that `twelve` imports from its module, in reading order.
        module: Whether the lesson has a module in `twelve`.
        exercises: Whether the lesson has exercises.
        page: Stem of notebook and workshop, if it differs from the stem of the module.
        package: Whether the module is a package.
    """

    number: str
    stem: str
    title: str
    question: str
    contract: str
    part: str
    exports: tuple[str, ...] = ()
    module: bool = True
    exercises: bool = True
    page: str = ""
    package: bool = False

    @property
    def notebook(self) -> str:
        """Path of the notebook, relative to the project root."""
        return f"notebooks/{self.number}_{self.page or self.stem}.ipynb"

    @property
    def source(self) -> str:
        """Path of the module, relative to the project root."""
        return f"src/twelve/{self.stem}{'/__init__' if self.package else ''}.py"

    @property
    def workshop(self) -> str:
        """Path of the workshop, relative to the project root."""
        return f"notebooks/workshop/{Path(self.notebook).name}"


STEPS = (
    Step("00", "start_here", "start here", part="the map", module=False, exercises=False,
         question="What happens to twelve numbers on their way through a Transformer?",
         contract="ids (batch, src) and (batch, tgt) -> logits (batch, tgt, vocab)"),
    Step("01", "linear", "linear", part="words become vectors", exports=("Linear",),
         question="How does a layer mix the features of a token?",
         contract="x (batch, seq, d_in) -> (batch, seq, d_out)"),
    Step("02", "embedding", "embedding", part="words become vectors", exports=("TokenEmbedding",),
         question="How does a word become numbers?",
         contract="ids (batch, seq) -> (batch, seq, d_model)"),
    Step("03", "positional_encoding", "positional encoding", part="words become vectors",
         exports=("sinusoid", "PositionalEncoding", "LearnedPositionalEncoding"),
         question="How does a token know where it stands?",
         contract="(batch, seq, d_model) -> (batch, seq, d_model)"),
    Step("04", "attention", "attention", part="words look at words",
         exports=("scaled_dot_product_attention",),
         question="How does a token collect what it needs from the others?",
         contract="query (batch, query, d_k), key (batch, key, d_k), value (batch, key, d_v) "
                  "-> (batch, query, d_v)"),
    Step("05", "masks", "masks", part="words look at words",
         exports=("padding_mask", "causal_mask"),
         question="How do we keep a token from looking where it must not?",
         contract="ids (batch, key) -> mask (batch, 1, query, key)"),
    Step("06", "multi_head_attention", "multi-head attention", part="words look at words",
         exports=("MultiHeadAttention",),
         question="How does a token ask several questions at once?",
         contract="(batch, query, d_model), (batch, key, d_model) -> (batch, query, d_model)"),
    Step("07", "normalization", "normalization", part="deep, yet stable",
         exports=("LayerNorm", "RMSNorm"),
         question="How do numbers stay in range through many layers?",
         contract="(batch, seq, d_model) -> (batch, seq, d_model)"),
    Step("08", "residual", "residual", part="deep, yet stable", exports=("Residual",),
         question="How does a deep stack keep its input and its gradients?",
         contract="(batch, seq, d_model) -> (batch, seq, d_model)"),
    Step("09", "feed_forward", "feed-forward", part="the parts make a model",
         exports=("FeedForward", "SwiGLU"),
         question="What does each token work out on its own?",
         contract="(batch, seq, d_model) -> (batch, seq, d_ff) -> (batch, seq, d_model)"),
    Step("10", "encoder", "encoder", part="the parts make a model",
         exports=("EncoderLayer", "Encoder"),
         question="How do the parts become a reader of the source sentence?",
         contract="(batch, src, d_model) -> memory (batch, src, d_model)"),
    Step("11", "decoder", "decoder", part="the parts make a model",
         exports=("DecoderLayer", "Decoder"),
         question="How does the writer use what it has written and what it has read?",
         contract="(batch, tgt, d_model), memory (batch, src, d_model) -> (batch, tgt, d_model)"),
    Step("12", "transformer", "transformer", part="the parts make a model",
         exports=("Transformer",),
         question="How do all the parts fit together?",
         contract="ids (batch, src) and (batch, tgt) -> logits (batch, tgt, vocab)"),
    Step("13", "training", "training", part="the model at work",
         question="How do the weights learn?",
         contract="logits (batch, tgt, vocab), labels (batch, tgt) -> loss"),
    Step("14", "generation", "generation", part="the model at work",
         question="How does the model write a sentence, word by word?",
         contract="ids (batch, src) -> ids (batch, tgt)"),
    Step("15", "same_as_pytorch", "same as PyTorch", part="the model at work", exercises=False,
         question="Are these the layers that PyTorch ships?",
         contract="weights of twelve <-> weights of torch.nn"),
    Step("16", "rotary_positions", "rotary positions", part="today's parts",
         exports=("RotaryEncoding",),
         question="How does attention know how far back a word is, if no position is added?",
         contract="(batch, head, seq, d_k) -> (batch, head, seq, d_k)"),
    Step("17", "grouped_query_attention", "grouped-query attention", part="today's parts",
         exports=("GroupedQueryAttention",),
         question="Why do several heads that ask share one head of keys and values?",
         contract="(batch, seq, d_model) -> (batch, seq, d_model)"),
    Step("18", "decoder_only", "decoder-only", part="today's parts",
         exports=("LanguageLayer", "LanguageModel"),
         question="What is left of the Transformer when there is no source?",
         contract="ids (batch, seq) -> logits (batch, seq, vocab)"),
    Step("19", "pretrained", "a language model", part="today's parts",
         package=True, page="a_language_model",
         question="Do our layers write English, and which part of them chose a word?",
         contract="ids (batch, seq) -> logits (batch, seq, vocab)"),
    Step("a1", "containers", "containers", part="appendices", module=False, exercises=False,
         question="What do Sequential, ModuleList and ModuleDict keep track of?",
         contract="modules -> one module"),
    Step("a2", "saving_and_devices", "saving and devices", part="appendices",
         module=False, exercises=False,
         question="How do weights get to a file, to a GPU and back?",
         contract="model -> file -> the same model"),
    Step("a3", "notes_corrected", "notes corrected", part="appendices",
         module=False, exercises=False,
         question="Which statements of the source notes are wrong?",
         contract="statements -> what runs"),
)  # fmt: skip


class Drill(NamedTuple):
    """A task to write from a blank page, as in a job interview.

    Attributes:
        stem: File name of its page and of its exercises.
        title: Short title, for use in a sentence.
        asked: Number of lists of interview questions, out of LISTS, that contain the task.
        exercise: Id of the exercise that grades the task: either its own, which begins with
            "by-hand", or one from a lesson.
        lesson: Number of the lesson that the task belongs to.
        exports: Names that `twelve` imports from its module; empty if it has no module.
    """

    stem: str
    title: str
    asked: int
    exercise: str
    lesson: str
    exports: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """Path of its module, relative to the project root."""
        return f"src/twelve/{self.stem}.py"

    @property
    def page(self) -> str:
        """Path of the page, relative to the project root."""
        return f"notebooks/{BY_HAND}/{self.stem}.ipynb"


# Number of lists of interview questions in which the tasks were counted. The lists copy each other,
# so the counts give an order but not a measure.
LISTS = 21
# Folder of the by-hand pages and of their exercises.
BY_HAND = "by_hand"
# The most frequent task first.
DRILLS = (
    Drill("multi_head_attention", "multi-head attention", 20, "06-multi-head-attention", "06"),
    Drill("kv_cache", "KV cache", 16, "by-hand-attention-with-cache", "14"),
    Drill("sampling", "top-k, top-p, temperature", 16, "by-hand-sampling-probabilities", "14"),
    Drill("lora", "LoRA", 15, "by-hand-lora", "01"),
    Drill("grouped_query_attention", "grouped queries", 15, "by-hand-grouped-query-attention",
          "17"),
    Drill("rotary", "rotary positions", 14, "by-hand-attention-with-rotary", "16"),
    Drill("rms_norm", "RMSNorm", 14, "07-rms-norm", "07"),
    Drill("cross_entropy", "cross entropy, log-sum-exp", 14, "13-loss", "13"),
    Drill("dpo", "DPO", 13, "by-hand-dpo-loss", "13"),
    Drill("softmax", "softmax that does not overflow", 13, "by-hand-softmax", "04"),
    Drill("grpo", "GRPO", 13, "by-hand-grpo-loss", "13"),
    Drill("ppo", "PPO and GAE", 12, "by-hand-ppo-loss", "13"),
    Drill("masks", "masks: padding, causal", 12, "by-hand-masked-attention", "05"),
    Drill("mixture_of_experts", "mixture of experts", 11, "by-hand-mixture-of-experts", "09",
          exports=("MixtureOfExperts",)),
    Drill("online_softmax", "online softmax", 10, "by-hand-attention-in-blocks", "04"),
    Drill("backward", "backward pass", 10, "by-hand-attention-backward", "04"),
    Drill("swiglu", "SwiGLU", 10, "09-swiglu", "09"),
    Drill("beam_search", "beam search", 9, "by-hand-beam-search", "14"),
    Drill("sinusoidal", "sinusoidal positions", 9, "by-hand-sinusoidal-encoding", "03"),
    Drill("encoder_layer", "encoder layer", 8, "10-encoder-layer", "10"),
    Drill("decoder_layer", "decoder layer", 8, "11-decoder-layer", "11"),
    Drill("latent_attention", "multi-head latent attention", 8, "by-hand-latent-attention", "17",
          exports=("LatentAttention",)),
    Drill("distillation", "distillation", 8, "by-hand-distillation", "13"),
    Drill("sliding_window", "sliding window", 7, "by-hand-rolling-cache", "05"),
    Drill("bpe", "byte-pair encoding", 7, "by-hand-bpe-train", "02"),
    Drill("int8", "int8 quantisation", 7, "by-hand-int8-matmul", "19"),
    Drill("adamw", "AdamW", 6, "by-hand-adamw-step", "13"),
    Drill("speculative_decoding", "speculative decoding", 6, "by-hand-speculative-step", "14"),
    Drill("accumulation", "gradient accumulation", 5, "by-hand-accumulated-gradients", "13"),
    Drill("alibi", "ALiBi", 2, "by-hand-alibi-weights", "16"),
)  # fmt: skip


def exercise_files() -> Iterator[tuple[str, str, str]]:
    """Yield the id prefix, the module and the lesson number of each file of exercises.

    Exercises of a by-hand page do not belong to a lesson.
    """
    for step in STEPS:
        if step.exercises:
            yield step.number, f"twelve_lab.exercises.{step.stem}", step.number
    for drill in DRILLS:
        yield "by-hand", f"twelve_lab.exercises.{BY_HAND}.{drill.stem}", ""


def find_step(number: str | int) -> Step:
    """Look up a lesson by its number.

    Args:
        number: Number in the file names, such as "04" (or 4) or "a1", or the stem.

    Raises:
        ValueError: If no lesson has this number.
    """
    wanted = f"{number:02d}" if isinstance(number, int) else str(number)
    for step in STEPS:
        if wanted in (step.number, step.stem):
            return step
    numbers = ", ".join(step.number for step in STEPS)
    raise ValueError(f"step {number!r} is not one of {numbers}")


def step_of(stem: str) -> str:
    """Return the lesson number of a module, or "" if no lesson has this module.

    Args:
        stem: File name of the module without its extension.
    """
    return next((step.number for step in STEPS if step.stem == stem), "")


def workshops_of(root: Path) -> list[Path]:
    """List the workshops: those of lessons in reading order, then the others.

    Args:
        root: The project root.
    """
    return sorted((root / "notebooks" / "workshop").glob("*.ipynb"))


def pages(root: Path) -> list[Path]:
    """List the notebooks: lessons in reading order, workshops, by-hand pages.

    Args:
        root: The project root.
    """
    by_hand = [root / drill.page for drill in DRILLS]
    return [*sorted((root / "notebooks").glob("*.ipynb")), *workshops_of(root), *by_hand]
