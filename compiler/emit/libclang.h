/* libclang.h: libclang, loaded when the first text is checked: loading takes longer than most runs of
 * burstc, which check none. */
#ifndef EMIT_LIBCLANG_H
#define EMIT_LIBCLANG_H
#include <clang-c/Index.h>

/* From clang-c/Index.h, without the prefix clang_. */
#define LIBCLANG_FUNCTIONS(X) \
    X(Cursor_getArgument) \
    X(File_isEqual) \
    X(Range_isNull) \
    X(createIndex) \
    X(disposeDiagnostic) \
    X(disposeIndex) \
    X(disposeString) \
    X(disposeTranslationUnit) \
    X(equalCursors) \
    X(formatDiagnostic) \
    X(getArrayElementType) \
    X(getCString) \
    X(getCanonicalType) \
    X(getClangVersion) \
    X(getCursorBinaryOperatorKind) \
    X(getCursorExtent) \
    X(getCursorKind) \
    X(getCursorLocation) \
    X(getCursorReferenced) \
    X(getCursorResultType) \
    X(getCursorSpelling) \
    X(getCursorType) \
    X(getCursorUnaryOperatorKind) \
    X(getDiagnostic) \
    X(getDiagnosticLocation) \
    X(getDiagnosticNumRanges) \
    X(getDiagnosticRange) \
    X(getDiagnosticSeverity) \
    X(getDiagnosticSpelling) \
    X(getFile) \
    X(getFileContents) \
    X(getFileLocation) \
    X(getFileName) \
    X(getNumDiagnostics) \
    X(getPointeeType) \
    X(getRange) \
    X(getRangeEnd) \
    X(getRangeStart) \
    X(getTranslationUnitCursor) \
    X(getTypeSpelling) \
    X(isConstQualifiedType) \
    X(isCursorDefinition) \
    X(parseTranslationUnit2) \
    X(saveTranslationUnit) \
    X(visitChildren)

typedef struct Libclang {
#define FIELD(name) __typeof__(&clang_##name) name;
    LIBCLANG_FUNCTIONS(FIELD)
#undef FIELD
} Libclang;

/* Loads the library unless it is loaded. Returns NULL, or why it cannot be loaded. */
const char *libclang_load(void);
/* Its functions, after libclang_load. */
const Libclang *clang(void);
#endif
