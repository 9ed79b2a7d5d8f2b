/* plan.h: Schedule, Plan and Cost, the later half of the pipeline's types. Included by burst.h alone. */
#ifndef BURST_PLAN_H
#define BURST_PLAN_H
#endif
