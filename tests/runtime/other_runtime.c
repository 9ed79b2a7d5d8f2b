/* other_runtime.c: linked in place of what the build says of the runtime's sources: a program of another
 * runtime. */
extern const char burst_runtime_sources[];
const char burst_runtime_sources[] = "another one";
