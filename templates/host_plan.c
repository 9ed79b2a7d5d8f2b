const BurstPlan burst_plan = {
    // @insert plan_fields
};
