/* burst_state.h: members of PlanState on either target, included in the struct before the target's own. */
    BurstExec *exec;               /* runs operations */
    bool alone;                    /* the run evaluates and does not train: its values have other offsets */
    PlanWeights weights;           /* this rank's parameters, gradients and moments */
    const int32_t *token, *label;  /* of this rank's tokens of the sequence */
    const float *label_weight;
    const BurstPosition *position; /* of this rank's tokens */
#ifdef PLAN_ROPE_TABLE
    const BurstPosition *turns;    /* positions by which RoPE rotates */
#endif
#ifdef PLAN_SCAN_COLUMNS
    const int32_t *place;          /* of this rank's tokens in their documents: 0 where scans restart */
    BurstPieces pieces; /* of the sequence, which this rank has */
#ifdef PLAN_SCAN_PIECES
    PlanScan scan;
#else
    int64_t scan_rows[2];          /* its tokens are one piece */
#endif
#endif
    double scale;                  /* of the loss's gradient */
    int sequence;                  /* sequences of the step that are done */
    BurstArrival arrival[3];       /* of the units of two visits, and of a tied embedding for the head */
    BurstOrder reduction, tensor;  /* of tensor ranks' communication */
    BurstCopies copies;            /* to and from host memory */
#ifdef PLAN_DEVICE_UPDATE
    BurstShards fetched;           /* shards of units fetched for their update */
#endif
    /* of the running update; NULL: parameters do not change */
    const BurstAdamW *adamw;
    int me;     /* this rank's chunk */
    int group;  /* index of the group of ranks that share a sequence */
    int64_t n;  /* tokens of the chunk */
    /* this rank's own tokens of the chunk; each: of every tensor rank but the last */
    int64_t own, each;
    /* leading tokens whose attention is recomputed; 0: all are attended */
    int64_t again;
    PlanTile tile; /* the operand of the running attention */
    int turn;   /* index among the tensor ranks */
    PlanChunkHeads heads; /* heads in the running attention */
    BurstChunk chunk[PLAN_GROUP], key[PLAN_KEYS]; /* of queries; of keys */
    BurstLive live[PLAN_MASKS][2]; /* forward, backward: the operations that the mask leaves */
    int mask;                      /* of the running attention */
#ifdef PLAN_SELECTIONS
    const int32_t *chosen; /* the lists of its tiles */
#endif
    PlanSlot home[BURST_TENSORS];
    PlanSlot piece[BURST_TENSORS][PLAN_PIECES]; /* of the rank's own chunk, except the first */
    PlanSlot *held[BURST_TENSORS][PLAN_KEYS]; /* the slot of a chunk, or of this rank's partial sum of it */
    PlanPool pool[PLAN_POOLS + 1];
#ifdef PLAN_SHARES
    /* chunks of the running direction are shares of the heads, for all ranks that share them */
    bool by_heads;
    PlanSlot share[BURST_TENSORS]; /* the rank's own share */
#endif
#ifdef PLAN_LATENTS
    PlanLatents latents;
#endif
#ifdef PLAN_CORRECTION
    float corrections[PLAN_LAYERS * PLAN_EXPERTS];
#endif
#ifdef PLAN_LOADS
    BurstLoads loads;
    double choices[PLAN_LAYERS * PLAN_EXPERTS]; /* of the whole step */
    double largest[PLAN_LAYERS], balance_loss;
#ifdef PLAN_BALANCE
    double shared[PLAN_DATA * PLAN_BALANCE_COUNTS]; /* of each group of ranks that shares a sequence */
#endif
#endif
    PlanBuffers buffer;
#ifdef PLAN_LIBRARY
    float score_scale; /* of the call */
#endif
#ifdef PLAN_INFER
    PlanInfer infer;
#endif
