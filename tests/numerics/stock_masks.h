/* stock_masks.h: the stock masks again, from their papers and their documented meaning, for the oracle.
 *
 * X(id, text in the model file, reads documents, predicate) over global positions q, k, and doc[] where documents are
 * read. q and k are never negative, so C's division is floored here.
 */
#define STOCK_MASKS(X) \
    X(full, "full", false, true) \
    X(causal, "causal", false, k <= q) \
    X(window, "window(17)", false, k <= q && q - k < 17) \
    X(window_sink, "window_sink(13, 4)", false, k <= q && (q - k < 13 || k < 4)) \
    X(document, "document", true, k <= q && doc[q] == doc[k])
