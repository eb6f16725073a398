"""Answers phrased by others, none of them from the table: what the checker makes of them.

A wrong answer is named where a known mistake gives its numbers, and located where none does. It
is never given the name of another mistake, and a right answer is never refused.
"""

from collections import Counter

import pytest

from tests.course.wrong_answers import RIGHT, WRONG
from twelve_lab.check import EXERCISES, MISTAKES, Task, diagnose

pytestmark = pytest.mark.slow

# By the name of the function: the mistake that its author made.
NAMED = {
    "x_times_w_plus_b": "weights-transposed",
    "new_shape_with_features_first": "transpose-view",
    "padding_row_is_just_a_row": "padding-idx-missing",
    "timing_signal": "pe-sin-cos-halves",
    "added_along_the_first_axis": "pe-sequence-first",
    "dropped_and_dropped": "dropout-twice",
    "dot_products": "scale-missing",
    "divided_by_the_dimension": "scale-d_k",
    "scaled_by_the_number_of_keys": "scale-length",
    "scaled_up_by_the_root": "scale-multiplied",
    "how_well_keys_match_queries": "qk-swapped",
    "softmax_down_the_columns": "softmax-queries",
    "padding_is_true": "mask-inverted",
    "hidden_rows": "mask-query-axis",
    "subsequent_mask": "mask-inverted",
    "only_what_came_before": "causal-diagonal",
    "keys_down_queries_across": "causal-triu",
    "causal_from_the_first_key": "causal-corner",
    "new_sees_what_is_old": "causal-diagonal",
    "last_rows_cut_from_the_columns": "causal-corner",
    "hidden_weights_are_wiped": "mask-after-softmax",
    "hidden_scores_are_zero": "mask-multiplied",
    "minus_infinity_everywhere": "mask-empty-row",
    "a_billion_below": "mask-finite",
    "true_means_hidden": "mask-inverted",
    "inverted_for_the_kernel": "mask-inverted",
    "scaled_for_safety": "scale-d_k",
    "hidden_values_are_zero": "mask-after-softmax",
    "heads_by_reshape": "split-view",
    "heads_take_turns": "split-interleaved",
    "straight_back_together": "merge-no-transpose",
    "mha_scaled_by_the_model": "scale-d_model",
    "mha_of_one_sentence": "cross-memory-unused",
    "norm_with_torch_std": "ln-unbiased",
    "norm_over_the_batch": "ln-batch",
    "rms_with_eps_outside": "rms-eps-outside",
    "add_and_norm": "norm-order",
    "stream_of_normed_values": "residual-overwritten",
    "straight_through": "residual-missing",
    "two_linear_layers": "activation-forgotten",
    "relu_at_the_end": "activation-twice",
    "up_is_the_gate": "gate-up-swapped",
    "n_times_the_layer": "layers-shared",
    "list_of_layers": "layers-in-list",
    "clones": "layers-cloned",
    "mask_at_the_door": "padding-mask-missing",
    "bare_stack": "norm-never-applied",
    "encoder_that_ends_with_norm": "norm-never-applied",
    "masked_by_its_own_padding": "cross-mask-target",
    "keys_of_memory_values_of_target": "cross-value-target",
    "target_looks_at_itself": "cross-memory-unused",
    "square_of_the_batch": "causal-batch-size",
    "future_of_the_target": "causal-triu",
    "decoder_from_a_tutorial": "norm-never-applied",
    "one_embedding_for_both": "embedding-shared",
    "mask_for_the_decoder_only": "padding-mask-missing",
    "probabilities_of_the_next_word": "softmax-before-loss",
    "causality_is_built_in": "causal-missing",
    "decoder_reads_the_source_words": "encoder-skipped",
    "same_in_and_out": "labels-not-shifted",
    "loss_of_the_probabilities": "softmax-before-loss",
    "every_step_starts_anew": "decode-position-zero",
    "theta_of_the_handout": "rotary-frequency-one",
    "places_after_the_cache": "rotary-one-late",
    "angles_of_the_chunk": "rotary-start-ignored",
    "permute_of_the_converter": "rows-woven-back",
    "every_other_row_of_all": "rows-across-heads",
    "rotate_as_in_llama": "rotary-halves",
    "neighbours_with_the_angles_of_llama": "rotary-cat",
    "multiplied_by_the_conjugate": "rotary-clockwise",
    "repeat_kv_by_repeat": "kv-tiled",
    "kv_stacked_behind_each_other": "kv-tiled",
    "as_many_copies_as_kv_heads": "kv-group-count",
    "grouped_with_einsum_as_tiles": "kv-tiled",
    "grouped_unscaled": "scale-missing",
    "grouped_over_the_wrong_axis": "softmax-queries",
    "cache_then_rope": "rotary-after-cache",
    "rope_from_zero_every_time": "cache-start-zero",
    "rope_on_all_three": "rotary-values-turned",
    "causal_only_while_the_cache_is_empty": "cache-mask-dropped",
    "copies_go_into_the_cache": "kv-shared-before-cache",
    "is_causal_flag_of_torch": "causal-corner",
    "every_second_head_with_the_next_group": "kv-tiled",
    "labels_are_the_ids_themselves": "labels-not-shifted",
    "chunk_attends_to_everything": "prompt-unmasked",
    "hf_style_square_mask": "causal-corner",
    "only_look_to_the_left": "left-padding-seen",
    "pads_do_not_ask": "mask-query-axis",
    "first_position_predicts": "prompt-first-logit",
    "take_the_newest": "prompt-padded-right",
    "nucleus_without_the_crossing_token": "top-p-one-short",
    "nucleus_in_sorted_order": "top-p-by-rank",
    "head_with_frozen_table": "table-untied",
    "no_mask_in_the_stack": "causal-missing",
    "logits_without_last_norm": "norm-never-applied",
    "every_nth_column": "split-interleaved",
    "permute_of_the_other_converter": "rows-woven-back",
    "first_half_second_half": "rows-across-heads",
    "torch_does_the_rest": "rows-kept",
    "eps_beside_the_root": "rms-eps-outside",
}


def name(answer):
    return answer.function.__name__


@pytest.mark.parametrize("answer", WRONG, ids=name)
def test_a_wrong_answer_is_named_or_located_and_never_misnamed(answer):
    verdict = diagnose(answer.exercise, answer.function)
    assert not verdict.ok
    assert verdict.kind != "not started"
    assert verdict.mistake == NAMED.get(name(answer)), (answer.meant, verdict)


@pytest.mark.parametrize("answer", RIGHT, ids=name)
def test_a_right_answer_in_unusual_words_is_right(answer):
    verdict = diagnose(answer.exercise, answer.function)
    assert verdict.ok, (answer.meant, verdict)


def test_there_are_forty_and_more_for_every_task_of_the_first_table():
    assert len({name(answer) for answer in WRONG + RIGHT}) == len(WRONG) + len(RIGHT)
    assert set(NAMED) <= {name(answer) for answer in WRONG}
    assert set(NAMED.values()) <= set(MISTAKES)
    assert len(WRONG) >= 40
    tasks = Counter(answer.exercise for answer in WRONG)
    assert all(isinstance(EXERCISES[id], Task) for id in tasks)
    assert min(tasks.values()) >= 3
