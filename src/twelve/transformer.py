"""Transformer: from token ids to logits.

Step 12 | notebooks/12_transformer.ipynb | tests/unit/test_transformer.py
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from twelve._checks import check_switch, checked
from twelve.decoder import Decoder
from twelve.embedding import TokenEmbedding
from twelve.encoder import Encoder
from twelve.linear import Linear
from twelve.positional_encoding import PositionalEncoding


class Transformer(nn.Module):
    """Encode a source sentence and compute logits for the next word of the target sentence.

    Args:
        src_vocab_size: Number of ids in the source language.
        tgt_vocab_size: Number of ids in the target language.
        d_model: Number of features at each position.
        num_heads: Number of heads in each attention layer.
        d_ff: Number of hidden features in each feed-forward layer; 4 · d_model by default.
        num_layers: Number of encoder layers, and of decoder layers.
        d_k: Number of features of a query and a key in each head; d_model / num_heads by default.
        d_v: Number of features of a value in each head; d_model / num_heads by default.
        dropout: Dropout probability, used after the positional encoding, on the attention
            weights, inside the feed-forward layer and on the output of each sublayer.
        norm_first: Pre-norm with a final norm on both stacks if true; the paper's post-norm
            without a final norm if false.
        activation: Activation of the feed-forward layers, as in FeedForward.
        bias: Whether the attention projections add a bias.
        scale_embedding: Whether to multiply the embeddings by √d_model.
        tie_weights: Whether the target table is also the output projection, which then has no
            bias. The table is then drawn with standard deviation 1/√d_model; with 1, the initial
            logits would be √d_model times too large.
        max_len: Maximum number of positions in a sentence.

    Raises:
        ValueError: If an argument is invalid for a submodule.

    Source:
        Vaswani et al. (2017), section 3 and figure 1, up to the logits; softmax is part of the
        loss. The paper shares one table between source, target and output. Here each language has
        its own, and tie_weights shares the target table with the output: Press and Wolf (2017).
    """

    def __init__(
        self, src_vocab_size: int, tgt_vocab_size: int, *, d_model: int = 512, num_heads: int = 8,
        d_ff: int | None = None, num_layers: int = 6, d_k: int | None = None,
        d_v: int | None = None, dropout: float = 0.0, norm_first: bool = True,
        activation: str = "relu", bias: bool = False, scale_embedding: bool = False,
        tie_weights: bool = False, max_len: int = 5000,
    ) -> None:  # fmt: skip
        super().__init__()
        check_switch("Transformer", tie_weights=tie_weights)
        self.d_model = d_model
        self.vocab_size = tgt_vocab_size
        self.max_len = max_len
        self.src_embedding = TokenEmbedding(src_vocab_size, d_model, scale=scale_embedding)
        self.tgt_embedding = TokenEmbedding(tgt_vocab_size, d_model, scale=scale_embedding)
        # Both languages share one positional encoding.
        self.positional_encoding = PositionalEncoding(d_model, max_len=max_len, dropout=dropout)
        stack = {
            "num_layers": num_layers, "d_k": d_k, "d_v": d_v, "dropout": dropout,
            "norm_first": norm_first, "activation": activation, "bias": bias,
        }  # fmt: skip
        self.encoder = Encoder(d_model, num_heads, d_ff, **stack)
        self.decoder = Decoder(d_model, num_heads, d_ff, **stack)
        self.output_projection = Linear(d_model, tgt_vocab_size, bias=not tie_weights)
        if tie_weights:
            self.tgt_embedding.reset_parameters(std=d_model**-0.5)
            self.output_projection.weight = self.tgt_embedding.weight

    @property
    def _is_tied(self) -> bool:
        return self.output_projection.weight is self.tgt_embedding.weight

    def _apply(self, *arguments: object, **keywords: object) -> "Transformer":
        """Keep tied weights tied in to_empty."""
        tied = self._is_tied
        super()._apply(*arguments, **keywords)
        if tied:
            self.output_projection.weight = self.tgt_embedding.weight
        return self

    def _load_from_state_dict(
        self, state_dict: dict[str, Tensor], prefix: str, metadata: dict, strict: bool,
        *others: object,
    ) -> None:  # fmt: skip
        """Reject weights of a model with a different tie_weights, and keep tied weights tied.

        Two different tables are rejected. With assign=True, both names get the same parameter.
        """
        names = [f"{prefix}{part}.weight" for part in ("tgt_embedding", "output_projection")]
        tied = self.output_projection.bias is None
        saved = f"{prefix}output_projection.bias" not in state_dict
        if strict and tied != saved and names[1] in state_dict:
            expected = f"{saved} as in the saved weights"
            raise ValueError(f"Transformer: tie_weights must be {expected}, got {tied}")
        tables = [state_dict[name] for name in names if name in state_dict]
        known = self._is_tied and tables and not tables[0].is_meta
        if known and not torch.equal(tables[0], tables[-1]):
            raise ValueError(f"Transformer: tied weights must be equal, got different {names}")
        if self._is_tied and names[0] in state_dict and metadata.get("assign_to_params_buffers"):
            state_dict.update(dict.fromkeys(names, nn.Parameter(state_dict[names[0]])))
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, *others)

    @checked
    def encode(
        self,
        src: Int[Tensor, "batch src"],
        *,
        src_mask: Bool[Tensor, "#batch #head #src #src"] | None = None,
    ) -> Float[Tensor, "batch src d_model"]:
        """Encode the source sentence.

        Args:
            src: Source token ids.
            src_mask: True where a source position may be attended to.

        Returns:
            The memory: one vector for each source position.

        Raises:
            ValueError: If the shapes do not match, or an id is outside the table.
        """
        embedded = self.src_embedding(src)
        src_input: Float[Tensor, "batch src d_model"] = self.positional_encoding(embedded)
        memory: Float[Tensor, "batch src d_model"] = self.encoder(src_input, src_mask=src_mask)
        return memory

    @checked
    def decode(
        self,
        tgt: Int[Tensor, "batch tgt"],
        memory: Float[Tensor, "batch src d_model"],
        *,
        tgt_mask: Bool[Tensor, "#batch #head #tgt #tgt"] | None = None,
        src_mask: Bool[Tensor, "#batch #head #tgt #src"] | None = None,
    ) -> Float[Tensor, "batch tgt vocab"]:
        """Compute the logits of the next word at each target position.

        Args:
            tgt: Target token ids, shifted right by one relative to the labels.
            memory: The encoder's output.
            tgt_mask: True where a target position may be attended to.
            src_mask: True where a source position may be attended to.

        Returns:
            Logits: one score for each word of the target vocabulary at each position.

        Raises:
            ValueError: If the shapes do not match, or an id is outside the table.
        """
        embedded = self.tgt_embedding(tgt)
        tgt_input: Float[Tensor, "batch tgt d_model"] = self.positional_encoding(embedded)
        decoder_output: Float[Tensor, "batch tgt d_model"] = self.decoder(
            tgt_input, memory, tgt_mask=tgt_mask, src_mask=src_mask
        )
        logits: Float[Tensor, "batch tgt vocab"] = self.output_projection(decoder_output)
        return logits

    @checked
    def forward(
        self,
        src: Int[Tensor, "batch src"],
        tgt: Int[Tensor, "batch tgt"],
        *,
        src_mask: Bool[Tensor, "#batch #head #query #src"] | None = None,
        tgt_mask: Bool[Tensor, "#batch #head #tgt #tgt"] | None = None,
    ) -> Float[Tensor, "batch tgt vocab"]:
        """Encode the source, decode the target.

        Args:
            src: Source token ids.
            tgt: Target token ids, shifted right by one relative to the labels.
            src_mask: True where a source position may be attended to, by the encoder and by the
                decoder; usually `padding_mask(src)`.
            tgt_mask: True where a target position may be attended to; usually
                `causal_mask(tgt.size(1))`.

        Returns:
            Logits: one score for each word of the target vocabulary at each position.

        Raises:
            ValueError: If the shapes do not match, or an id is outside its table.
        """
        memory = self.encode(src, src_mask=src_mask)
        return self.decode(tgt, memory, tgt_mask=tgt_mask, src_mask=src_mask)
