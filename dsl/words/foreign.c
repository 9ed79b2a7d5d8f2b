/* words/foreign.c: words of other frameworks, and settings of other blocks: what to write instead. */
#include "check.h"

#include <string.h>

/* The block of a setting, named as for take_fields. */
typedef struct Block {
    const char *what, *where;
} Block;
enum { FILE_, MODEL, ATTENTION, LAYOUT, TRAIN, OPTIMIZER, CLUSTER, NOWHERE };
static const Block blocks[] = {
    [FILE_] = {"a model file", "outside of the blocks"},
    [MODEL] = {"the model", "`model NAME { }`"},
    [ATTENTION] = {"attention", "`attention { }`"},
    [LAYOUT] = {"the layout", "`layout { }`"},
    [TRAIN] = {"training", "`train { }`"},
    [OPTIMIZER] = {"the optimizer", "`train { optimizer adamw { } }`"},
    [CLUSTER] = {"the cluster", "the cluster's file (.topo)"},
};

/* words: separated by blanks. ours: the setting in its block; NOWHERE: the whole answer. The first word of
 * ours is also one of the words. */
static const struct Foreign {
    int block;
    const char *ours, *words;
} foreign[] = {
    {FILE_, "sequence 64Ki",
     " seq_len seqlen seq_length sequence_length max_seq_len max_seq_length max_length "
     "max_position_embeddings "
     "block_size context_length context_window n_ctx n_positions model_max_length cutoff_len "},
    {MODEL, "layers N", " num_layers n_layers n_layer num_hidden_layers depth num_blocks "},
    {MODEL, "hidden N", " hidden_size d_model n_embd embed_dim embedding_dim model_dim dim width "},
    {MODEL, "heads N", " num_heads n_heads n_head num_attention_heads attention_heads "},
    {MODEL, "kv_heads N", " n_kv_heads num_kv_heads num_key_value_heads num_query_groups n_kv_head "},
    {MODEL, "head_dim N", " d_head head_size kv_channels dim_head "},
    {MODEL, "ffn swiglu N",
     " intermediate_size ffn_size ffn_dim ffn_hidden_size d_ff n_inner mlp mlp_dim hidden_act activation "
     "activation_function "},
    {MODEL, "norm rmsnorm 1e-5",
     " norm_eps rms_norm_eps layer_norm_eps layer_norm_epsilon rmsnorm layernorm "},
    {MODEL, "rope 10000", " rope_theta rope_base rotary_base rope_scaling rope_parameters theta "},
    {MODEL, "rotary N", " rotary_dim rotary_pct rotary_percent partial_rotary_factor "},
    {MODEL, "vocab N", " vocab_size n_vocab vocabulary padded_vocab_size "},
    {MODEL, "tied yes", " tie_word_embeddings tie_embeddings weight_tying tie_weights "},
    {MODEL, "qkv_bias yes", " attention_bias bias use_bias add_qkv_bias "},
    {MODEL, "qk_norm yes", " use_qk_norm qk_layernorm "},
    {MODEL, "family llama", " model_type architecture architectures "},
    {ATTENTION, "default window(4Ki)",
     " sliding_window window window_size attention_window local_window local_attention swa "},
    {ATTENTION, "default causal", " causal is_causal mask attention_mask attn_mask "},
    {ATTENTION, "softcap 50", " attn_logit_softcapping logit_softcapping soft_cap "},
    {ATTENTION, "sinks learned", " attention_sinks sink "},
    {ATTENTION, "positions position", " position_ids reset_position_ids "},
    {OPTIMIZER, "lr 3e-4", " learning_rate max_lr peak_lr base_lr "},
    {OPTIMIZER, "betas 0.9 0.95", " beta1 beta2 adam_beta1 adam_beta2 adam_betas "},
    {OPTIMIZER, "eps 1e-8", " epsilon adam_eps adam_epsilon "},
    {OPTIMIZER, "decay 0.1", " weight_decay wd adam_weight_decay "},
    {OPTIMIZER, "clip 1", " max_grad_norm grad_clip clip_grad gradient_clipping gradient_clip clip_norm "},
    {OPTIMIZER, "warmup 100",
     " warmup_steps num_warmup_steps lr_warmup_steps warmup_iters warmup_ratio lr_warmup_iters "},
    {OPTIMIZER, "cosine to 3e-5",
     " schedule scheduler lr_schedule lr_scheduler lr_scheduler_type lr_decay_style min_lr lr_min end_lr "
     "final_lr "
     "min_learning_rate "},
    {OPTIMIZER, "momentum 0.95", " muon_momentum "},
    {TRAIN, "steps 1000",
     " max_steps total_steps num_steps train_steps num_train_steps iterations iters train_iters max_iters "},
    {TRAIN, "batch N",
     " batch_size global_batch_size train_batch_size micro_batch_size per_device_train_batch_size mbs gbs "},
    {TRAIN, "data \"tokens.tok\"",
     " dataset datasets dataset_name dataset_path data_path train_data train_file training_data data_dir "},
    {TRAIN, "evaluate \"valid.tok\" every 200",
     " eval eval_steps eval_interval eval_data eval_dataset eval_strategy evaluation_strategy validation "
     "valid "
     "val_data validation_data "},
    {TRAIN, "checkpoint \"checkpoints\" every 100",
     " save save_steps save_interval save_every save_strategy save_dir ckpt checkpoint_dir checkpoint_every "
     "output_dir "},
    {TRAIN, "weights \"Llama-3-8B\"",
     " pretrained pretrained_model model_name_or_path model_name init_from load_from from_pretrained "
     "base_model "},
    {TRAIN, "export \"trained\"", " export_dir hf_output save_pretrained "},
    {TRAIN, "separator N", " eos eos_id eos_token eos_token_id eod eod_token "},
    {TRAIN, "packed yes", " packing pack sample_packing pack_sequences "},
    {TRAIN, "seed 1", " random_seed data_seed manual_seed "},
    {TRAIN, "deterministic yes", " deterministic_mode use_deterministic_algorithms full_determinism "},
    {TRAIN, "optimizer adamw { lr 3e-4; }", " optim adamw adam optimiser "},
    {LAYOUT, "tensor N",
     " tp tp_size tp_degree tensor_parallel tensor_parallel_size tensor_model_parallel_size "},
    {LAYOUT, "context N",
     " cp cp_size cp_degree sp sp_size sequence_parallel sequence_parallel_size context_parallel "
     "context_parallel_size ring_size "},
    {LAYOUT, "schedule ulysses", " ulysses ulysses_size ulysses_degree ulysses_sequence_parallel_size "},
    {LAYOUT, "data N", " dp dp_size dp_degree data_parallel data_parallel_size "},
    {LAYOUT, "weights zero3",
     " fsdp fsdp2 fsdp_config zero zero_stage zero_optimization zero1 zero2 zero3 sharding "
     "sharding_strategy "},
    {LAYOUT, "recompute full",
     " gradient_checkpointing activation_checkpointing activation_checkpoint checkpointing remat "
     "recompute_activations recompute_granularity "},
    {LAYOUT, "offload optimizer", " cpu_offload offload_optimizer optimizer_offload offload_param "},
    {LAYOUT, "offload activations", " activation_offload activation_offloading offload_activations "},
    {LAYOUT, "gradients bf16", " grad_dtype reduce_dtype grad_reduce_dtype "},
    {CLUSTER, "nodes 2 { gpus 8 of h100; nics 8 of ndr; }",
     " world_size num_gpus n_gpus num_nodes nnodes nproc_per_node devices gpus cpus nics device "},
    {NOWHERE,
     "the length of a run is `train { steps N; }`; an epoch is the data's tokens / (sequence * batch) steps",
     " epoch epochs num_epochs n_epochs num_train_epochs max_epochs train_epochs "},
    {NOWHERE,
     "`train { batch N; }` counts all sequences of a step; those beyond the layout's `data` groups are "
     "accumulated",
     " gradient_accumulation gradient_accumulation_steps grad_accum grad_accum_steps accumulation_steps "
     "accumulate_grad_batches gas num_microbatches "},
    {NOWHERE,
     "the device decides: bf16 products, fp32 sums, weights and moments on GPUs, fp32 on CPUs; "
     "remove it",
     " dtype torch_dtype precision bf16 fp16 fp32 fp8 amp mixed_precision param_dtype compute_dtype half "},
    {NOWHERE, "experts are `moe { experts N; top N; ffn swiglu N; }` of the model, in place of `ffn`",
     " num_experts n_experts num_local_experts n_routed_experts experts moe_top_k num_experts_per_tok "
     "num_experts_per_token top_k router "},
    {NOWHERE, "the loss that balances experts is `balance X;` in `moe { ... }`",
     " router_aux_loss_coef aux_loss_coef moe_aux_loss_coeff aux_loss_alpha load_balancing_loss "},
    {NOWHERE, "each rank computes all experts of its own tokens, with their gathered weights",
     " expert_parallel ep ep_size expert_model_parallel_size "},
    {NOWHERE, "dropout is not supported; remove it",
     " dropout attention_dropout hidden_dropout resid_pdrop attn_pdrop embd_pdrop hidden_dropout_prob "},
    {NOWHERE,
     "pipeline parallelism is not supported; use `tensor`, `context`, `heads` and `weights zero3` of the "
     "layout",
     " pp pp_size pipeline pipeline_parallel pipeline_parallel_size pipeline_model_parallel_size "},
    {NOWHERE, "adapters are not supported: all weights are trained",
     " lora lora_rank lora_alpha peft qlora "},
    {NOWHERE, "a program prints each step, and `--metrics FILE` writes all of them",
     " log_interval logging_steps logging_dir log_every report_to wandb tensorboard "},
    {NOWHERE, "a data file has tokens; `burst tokens FILE --tokenizer FOLDER -o OUT` makes them from text",
     " tokenizer tokenizer_name tokenizer_path tokenizer_type tokenizer_model "},
    {NOWHERE, "a program resumes with its option `--resume`", " resume resume_from resume_from_checkpoint "},
};

/* Stock masks under other names. */
static const struct {
    const char *ours, *words;
} masks[] = {
    {"window(w)", " sliding_window sliding swa local local_window local_causal window_attention "},
    {"window_sink(w, s)", " streaming streaming_llm sink sinks attention_sink attention_sinks "},
    {"full", " bidirectional noncausal non_causal all dense none full_attention "},
    {"causal", " autoregressive tril lower lower_triangular causal_mask full_causal "},
    {"document", " docs packed varlen block_diagonal document_causal document_mask intra_document doc_mask "},
    {"prefix_lm(n)", " prefix prefixlm "},
    {"block_local(b)", " block blockwise block_sparse local_block "},
    {"chunked(c)", " chunk chunked_attention "},
};

static bool has_word(const char *words, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at++)
        if (at[-1] == ' ' && at[n] == ' ')
            return true;
    return false;
}

static bool is_ours(const char *ours, const char *word)
{
    const size_t n = strcspn(ours, " ");
    return strlen(word) == n && strncmp(ours, word, n) == 0;
}

static bool is_block(const char *what)
{
    bool is = false;
    for (int i = 0; i < countof(blocks); i++)
        is |= strcmp(blocks[i].what, what) == 0;
    return is;
}

const char *foreign_answer(Checker *c, const char *word, const char *what)
{
    for (int i = 0; i < countof(foreign) && *word && is_block(what); i++) {
        const struct Foreign *f = &foreign[i];
        if (!has_word(f->words, word) && !(f->block != NOWHERE && is_ours(f->ours, word)))
            continue;
        if (f->block == NOWHERE)
            return f->ours;
        const char *end = f->ours[strlen(f->ours) - 1] == '}' ? "" : ";",
                   *written = arena_printf(c->arena, "write `%s%s`", f->ours, end);
        if (strcmp(blocks[f->block].what, what) == 0)
            return written;
        return arena_printf(c->arena, "%s %s%s", written, f->block == FILE_ ? "" : "in ",
                            blocks[f->block].where);
    }
    return NULL;
}

const char *foreign_mask(const char *word)
{
    for (int i = 0; i < countof(masks); i++)
        if (has_word(masks[i].words, word))
            return masks[i].ours;
    return NULL;
}
