"""Transformer: from token ids to logits.

Step 12 | notebooks/12_transformer.ipynb | tests/unit/test_transformer.py
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from twelve._checks import check_ids, check_same, check_switch
from twelve.decoder import Decoder
from twelve.embedding import TokenEmbedding
from twelve.encoder import Encoder
from twelve.linear import Linear
from twelve.positional_encoding import PositionalEncoding


class Transformer(nn.Module):
    """Read a source sentence, and score every word as the next one of the target sentence.

    Args:
        src_vocab_size: Ids of the source language.
        tgt_vocab_size: Ids of the target language.
        d_model: Features of each position.
        num_heads: Heads of each attention.
        d_ff: Features inside each feed-forward layer; 4 · d_model if not given.
        num_layers: Encoder layers, and as many decoder layers.
        d_k: Features of a query and a key in each head; d_model / num_heads if not given.
        d_v: Features of a value in each head; d_model / num_heads if not given.
        dropout: Probability at every dropout: after embedding and position, on the attention
            weights, inside the feed-forward layer and on what each sublayer adds.
        norm_first: Pre-norm with a final norm on both stacks if true; the paper's post-norm
            without one if false.
        activation: "relu" or "gelu".
        bias: Whether the projections of the attentions add a bias.
        scale_embedding: Whether to multiply the embeddings by √d_model.
        tie_weights: Whether the target table is also the output projection, which then has no
            bias. The table starts with standard deviation 1/√d_model: at 1 the logits would start
            √d_model times too large.
        max_len: Longest sentence.
        fused: Whether attention and norm call torch's fused kernels: the same numbers.

    Raises:
        ValueError: If one of its parts refuses its sizes.

    Source:
        Vaswani et al. (2017), section 3 and figure 1, up to the logits; softmax belongs to the
        loss. The paper shares one table among source, target and output; here each language has
        its own, and tie_weights joins the target's with the output. Tying: Press and Wolf (2017).
    """

    def __init__(
        self, src_vocab_size: int, tgt_vocab_size: int, *, d_model: int = 512, num_heads: int = 8,
        d_ff: int | None = None, num_layers: int = 6, d_k: int | None = None,
        d_v: int | None = None, dropout: float = 0.0, norm_first: bool = True,
        activation: str = "relu", bias: bool = False, scale_embedding: bool = False,
        tie_weights: bool = False, max_len: int = 5000, fused: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        check_switch("Transformer", tie_weights=tie_weights)
        self.src_embedding = TokenEmbedding(src_vocab_size, d_model, scale=scale_embedding)
        self.tgt_embedding = TokenEmbedding(tgt_vocab_size, d_model, scale=scale_embedding)
        # One positional encoding for both: it depends on the position alone, on no language.
        self.positional_encoding = PositionalEncoding(d_model, max_len=max_len, dropout=dropout)
        stack = {
            "num_layers": num_layers, "d_k": d_k, "d_v": d_v, "dropout": dropout,
            "norm_first": norm_first, "activation": activation, "bias": bias, "fused": fused,
        }  # fmt: skip
        self.encoder = Encoder(d_model, num_heads, d_ff, **stack)
        self.decoder = Decoder(d_model, num_heads, d_ff, **stack)
        self.output_projection = Linear(d_model, tgt_vocab_size, bias=not tie_weights)
        if tie_weights:
            self.tgt_embedding.reset_parameters(std=d_model**-0.5)
            self.output_projection.weight = self.tgt_embedding.weight

    def _apply(self, *arguments: object, **keywords: object) -> "Transformer":
        """Keep one table one: where torch makes new parameters, as in to_empty, it makes two."""
        tied = self.output_projection.weight is self.tgt_embedding.weight
        super()._apply(*arguments, **keywords)
        if tied:
            self.output_projection.weight = self.tgt_embedding.weight
        return self

    def load_state_dict(
        self, state_dict: dict[str, Tensor], strict: bool = True, assign: bool = False
    ) -> object:
        """Load saved weights, but unless told not to be strict none of a model tied otherwise."""
        tied = self.output_projection.bias is None
        saved = "output_projection.bias" not in state_dict
        if strict and tied != saved and "output_projection.weight" in state_dict:
            raise ValueError(f"Transformer: tie_weights is {tied} here and was {saved} where saved")
        return super().load_state_dict(state_dict, strict, assign)

    def encode(
        self,
        src: Int[Tensor, "batch src"],
        *,
        src_mask: Bool[Tensor, "#batch #head #src #src"] | None = None,
    ) -> Float[Tensor, "batch src d_model"]:
        """Read the source sentence once.

        Args:
            src: Source token ids.
            src_mask: True where a source position may be looked at.

        Returns:
            The memory: one vector for each source position.
        """
        embedded = self.src_embedding(src)
        src_input: Float[Tensor, "batch src d_model"] = self.positional_encoding(embedded)
        memory: Float[Tensor, "batch src d_model"] = self.encoder(src_input, src_mask=src_mask)
        return memory

    def decode(
        self,
        tgt: Int[Tensor, "batch tgt"],
        memory: Float[Tensor, "batch src d_model"],
        *,
        tgt_mask: Bool[Tensor, "#batch #head #tgt #tgt"] | None = None,
        src_mask: Bool[Tensor, "#batch #head #tgt #src"] | None = None,
    ) -> Float[Tensor, "batch tgt vocab"]:
        """Score every word as the one that follows each target position.

        Args:
            tgt: Target token ids so far, shifted right by one against the labels.
            memory: The encoder's output.
            tgt_mask: True where a target position may be looked at.
            src_mask: True where a source position may be looked at.

        Returns:
            Logits: one score for each word of the target vocabulary at each position.
        """
        embedded = self.tgt_embedding(tgt)
        tgt_input: Float[Tensor, "batch tgt d_model"] = self.positional_encoding(embedded)
        decoder_output: Float[Tensor, "batch tgt d_model"] = self.decoder(
            tgt_input, memory, tgt_mask=tgt_mask, src_mask=src_mask
        )
        logits: Float[Tensor, "batch tgt vocab"] = self.output_projection(decoder_output)
        return logits

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
            tgt: Target token ids, shifted right by one against the labels.
            src_mask: True where a source position may be looked at, from the encoder and from
                the decoder alike; usually `padding_mask(src)`.
            tgt_mask: True where a target position may be looked at; usually
                `causal_mask(tgt.size(1))`.

        Returns:
            Logits: one score for each word of the target vocabulary at each position.

        Raises:
            ValueError: If src and tgt differ in batch, or a part refuses its input.
        """
        check_ids("Transformer", src=src, tgt=tgt)
        check_same("Transformer", "batch", src=src.size(0), tgt=tgt.size(0))
        memory = self.encode(src, src_mask=src_mask)
        return self.decode(tgt, memory, tgt_mask=tgt_mask, src_mask=src_mask)
