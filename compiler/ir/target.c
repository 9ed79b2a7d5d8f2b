/* target.c: the registry of targets. A row has all that passes know about a target. */
#include "ir/cluster.h"

#include "burst_kernels.h"

#include <string.h>

const Target targets[TARGETS] = {
    [TARGET_C] =
        {
            .name = "c",
            .language = "C",
            .device = "cpu",
            .suffix = ".c",
            .build = {.variable = "CC",
                      .compiler = "cc",
                      .flags = "-std=gnu17 -O2 -march=" BURST_MARCH " -Wall -Wextra",
                      .link_file = "link.txt",
                      .link = "-lburst_rt -lopenblas -ljansson -lz -lm -lpthread",
                      .library_flags = " -fPIC -fvisibility=hidden",
                      .library_file = "link_library.txt",
                      .library_link = "-lburst_plan -lm -lpthread"},
            .activation_bytes = 4,
            .align = 64,
            .copies_at_wait = true,
            .shares_cores = true,
            .least_kernel = 1e-7,
            .matmul_type = "fp32",
            .attention_share = {0.5, 0.4},
            .experts_share = 1,
            .memory_rate = 20e9,
            .link_rate = 10e9,
            .passes_share = 1,
        },
    [TARGET_CUDA] =
        {
            .name = "cuda",
            .language = "CUDA",
            .device = "GPU",
            .suffix = ".cu",
            .build =
                {.variable = "NVCC",
                 .compiler = "nvcc",
                 .flags = "-std=c++17 -O3 -gencode arch=compute_@,code=sm_@ -Xcompiler -Wall,-Wextra",
                 .link_file = "link_cuda.txt",
                 .link =
                     "-lburst_rt_cuda -lburst_rt -lopenblas -ljansson -lz -lm -lpthread -lnccl -lcublasLt",
                 .library_flags = " -Xcompiler -fPIC,-fvisibility=hidden",
                 .library_file = "link_library_cuda.txt",
                 .library_link = "-lburst_plan_cuda -lburst_plan -lm -lpthread -lnccl"},
            .head_dim = {BURST_HEAD_DIM_LEAST, BURST_HEAD_DIM_MOST, BURST_HEAD_DIM_STEP},
            .activation_bytes = 2,
            .align = 256,
            .device_memory = true,
            .one_layout = true,
            .least_kernel = 5e-6,
            .recorded_kernel = 2.4e-6, /* of 450 a token: page first-token of benchmarks/log */
            .matmul_type = "bf16",
            .attention_share = {0.75, 0.65},
            .experts_share = 0.85, /* 606 of 718 TFLOP/s on an H100: page experts of benchmarks/log */
            .memory_rate = 2000e9,
            .link_rate = 300e9,
            .passes_share = 0.7,
        },
};

const Target *target_named(const char *name)
{
    for (int i = 0; i < TARGETS; i++)
        if (strcmp(targets[i].name, name) == 0)
            return &targets[i];
    return NULL;
}

const Target *target_of_suffix(const char *path)
{
    const size_t n = strlen(path);
    for (int i = 0; i < TARGETS; i++) {
        const size_t m = strlen(targets[i].suffix);
        if (n >= m && strcmp(path + n - m, targets[i].suffix) == 0)
            return &targets[i];
    }
    return NULL;
}
