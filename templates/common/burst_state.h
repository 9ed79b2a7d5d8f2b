/* burst_state.h: members of PlanState on either target, included in the struct before the target's own. */
    BurstExec *exec;               /* what runs operations */
    PlanWeights weights;           /* this rank's parameters, gradients and moments */
    const int32_t *token, *label;  /* of the sequence, by this rank's tokens */
    const float *label_weight;
    const BurstPosition *position; /* of this rank's tokens */
#ifdef PLAN_ROPE_TABLE
    const BurstPosition *turns;    /* of these, by which RoPE turns */
#endif
    double scale;                  /* of the loss's gradient */
    int sequence;                  /* how many of the step are done */
    BurstArrival arrival[3];       /* of the units of two visits, and of a tied embedding for the head */
    BurstOrder reduction, tensor;  /* what tensor ranks do among them */
    BurstCopies copies;            /* to and from the host's memory */
#ifdef PLAN_DEVICE_UPDATE
    BurstShards fetched;           /* of the weights, where units of them come to be updated */
#endif
    /* what an update of units needs of the step; NULL: parameters stay as they are */
    const BurstAdamW *adamw;
    int me;     /* chunk of this rank */
    int group;  /* of ranks that share a sequence */
    int64_t n;  /* tokens of the chunk */
    /* of these, this rank's own; of the ranks that have the chunk together, all but the last have `each` */
    int64_t own, each;
    /* of them, the first that are attended again, outputs of the others having been kept; 0: all are
     * attended */
    int64_t again;
    bool adds;  /* sums of the keys' gradients are there: of queries before these */
    bool keys_there; /* and so are keys of all that share heads, with those sums */
    bool goes_on, follows; /* chunks of keys come before these, and after them: of the same queries */
    bool more;  /* queries come after these, which add to the same sums */
    int turn;   /* among these ranks */
    PlanChunkHeads heads; /* that attention has */
    BurstChunk chunk[PLAN_GROUP], key[PLAN_KEYS]; /* of queries, of keys */
    BurstLive live[PLAN_MASKS][2]; /* forward, backward: what the mask leaves of the schedule */
    int mask;                      /* of the attention that runs now */
    PlanSlot home[BURST_TENSORS];
    PlanSlot piece[BURST_TENSORS][PLAN_PIECES]; /* at home too: all but the first */
    PlanSlot *held[BURST_TENSORS][PLAN_KEYS]; /* where a chunk, or this rank's partial sum of it, is */
    PlanPool pool[PLAN_POOLS + 1];
#ifdef PLAN_SHARES
    bool by_heads; /* chunks of the direction that runs: shares of the heads, for all that share them */
    PlanSlot share[BURST_TENSORS]; /* the rank's own of these */
#endif
#ifdef PLAN_LATENTS
    PlanLatents latents;
#endif
    PlanBuffers buffer;
#ifdef PLAN_LIBRARY
    float score_scale; /* of the call */
#endif
