/* stock_masks.h: the stock masks again, from their papers and the comments of masks.burst, for the oracle;
 * a pattern from a file, and bits.
 *
 * X(id, text in the model file, reads documents, predicate) over global positions q, k, and doc[] where
 * documents are read. q and k are never negative, so C's division is floored here.
 */
#define STOCK_MASKS(X) \
    X(full, "full", false, true) \
    X(causal, "causal", false, q >= k) \
    X(window, "window(17)", false, k <= q && k > q - 17) \
    X(window_sink, "window_sink(13, 4)", false, k <= q && (k < 4 || k > q - 13)) \
    X(dilated, "dilated(5, 3)", false, q == k || q - k == 3 || q - k == 6 || q - k == 9 || q - k == 12) \
    X(strided, "strided(6, 9)", false, k <= q && (q - k <= 5 || (q - k) / 9 * 9 == q - k)) \
    X(block_local, "block_local(11)", false, k >= q / 11 * 11 && k < q / 11 * 11 + 11) \
    X(block_causal, "block_causal(12)", false, k < (q / 12 + 1) * 12) \
    X(prefix_lm, "prefix_lm(23)", false, k <= q || (k <= 22)) \
    X(document, "document", true, k <= q && doc[q] == doc[k]) \
    X(shared_question, "shared_question(14, 10)", false, \
      k <= q && (k < 14 || k >= 14 + answer(q, 14, 10) * 10)) \
    X(longnet, "longnet(8, 2)", false, \
      k <= q && (k >= q / 8 * 8 || (k >= q / 16 * 16 && (q & 1) == (k & 1)) || \
                 (k >= q / 32 * 32 && (q & 3) == (k & 3)))) \
    X(bigbird, "bigbird(8, 1, 2, 5)", false, \
      k <= q && (k <= 7 || k >= (q / 8 - 1) * 8 || murmur(q / 8, k / 8) % 5 == 0)) \
    X(chunked, "chunked(10)", false, k <= q && k > q - q % 10 - 1) \
    X(pattern, "file \"pattern.txt\" at (q / 9, k / 7)", false, \
      q / 9 < PATTERN_SIDE && k / 7 < PATTERN_SIDE && (q / 9 * 7 + k / 7 * 3) % 5 < 2) \
    X(bits, "causal and bitand(q, 20) == bitand(k, 28, 53)", false, \
      k <= q && (q / 4 % 2 * 4 + q / 16 % 2 * 16 == k / 4 % 2 * 4 + k / 16 % 2 * 16)) \
    X(bits_or, "causal and bitor(q, 20) == bitor(4, k, 16)", false, \
      k <= q && q % 4 == k % 4 && q / 8 % 2 == k / 8 % 2 && q / 32 == k / 32) \
    X(butterfly, "causal and bitand(bitxor(q / 8, k / 8), bitxor(q / 8, k / 8) - 1) == 0", false, \
      k <= q && differing_bits(q / 8, k / 8) <= 1)
