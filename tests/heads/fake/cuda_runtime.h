/* cuda_runtime.h: as much of it as burst_gpu.h and the cut program name. Streams and events are those of streams.h. */
#pragma once
typedef struct Stream *cudaStream_t;
typedef struct Event *cudaEvent_t;
typedef enum cudaError_t { cudaSuccess } cudaError_t;
static inline const char *cudaGetErrorString(cudaError_t) { return "no error"; }
