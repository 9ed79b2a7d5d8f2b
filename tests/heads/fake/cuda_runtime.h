/* cuda_runtime.h: as much of it as burst_gpu.h and the cut program name. Streams and events are those of
 * streams.h. */
#pragma once
#include <cstddef>
typedef struct Stream *cudaStream_t;
typedef struct Event *cudaEvent_t;
typedef enum cudaError_t { cudaSuccess } cudaError_t;
cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemset2DAsync(void *at, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream);
static inline const char *cudaGetErrorString(cudaError_t) { return "no error"; }

/* A copy of rows on a stream: queued as computing by the test that includes this. */
enum cudaMemcpyKind { cudaMemcpyDeviceToDevice };
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream);
