/* Where the analysis changes its mind: runs worked out by hand, just on this and just on that side
 * of every limit.  Ranks compute, then exchange for 2 s once all have come; all have the same
 * tokens. */
#include "tests/profiler/straggler/synthetic.h"

enum { RANKS = 4, MOST = 60 };

struct drawn {
    double work[MOST][RANKS], start[MOST][RANKS], off_core[MOST][RANKS]; /* s */
    int phase;                                                           /* of the work */
    struct mp_recorded_rank rank[MOST * RANKS];
    struct mp_recorded_span span[2 * MOST * RANKS];
};

static struct drawn drawn;

/* All ranks work for so long and begin at once. */
static void draw(double work) {
    drawn = (struct drawn){.phase = MP_PHASE_EXPERT};
    for (int i = 0; i < MOST; i++)
        for (int r = 0; r < RANKS; r++)
            drawn.work[i][r] = work;
}

static struct mp_straggler analysed_drawn(int iterations) {
    for (int i = 0; i < iterations; i++) {
        double end = 0;
        for (int r = 0; r < RANKS; r++)
            end = fmax(end, drawn.start[i][r] + drawn.work[i][r] + 2);
        for (int r = 0; r < RANKS; r++) {
            int at = i * RANKS + r;
            double start = drawn.start[i][r], came = start + drawn.work[i][r];
            drawn.rank[at] = (struct mp_recorded_rank){start, end, (size_t)(2 * at), 2,
                                                       drawn.work[i][r] + 2 - drawn.off_core[i][r]};
            drawn.span[2 * at] =
                (struct mp_recorded_span){start, came, 0, 100, 0, drawn.phase, MP_FORWARD};
            drawn.span[2 * at + 1] = (struct mp_recorded_span){
                came, end, end - came, 100, 0, MP_PHASE_COMBINE, MP_FORWARD};
        }
    }
    return analysed_times(RANKS, iterations, drawn.rank, drawn.span,
                          (size_t)(2 * RANKS * iterations));
}

static void assert_finding(const struct mp_straggler *found, int at, int rank, enum mp_cause cause,
                           double waiting) {
    assert_close(finding_of(found, at, rank, cause)->waiting, waiting, 1e-9);
}

/* An iteration takes 20 s.  Rank 3 is 8 s late in seven of ten; in which of the others it matters
 * is said by 1 % of that. */
TEST(what_matters_is_one_percent) {
    draw(10);
    for (int i = 0; i < 10; i++)
        drawn.work[i][3] = i < 7 ? 18 : i == 7 ? 10.19 : i == 8 ? 10.21 : 10.1;
    AUTO(straggler) struct mp_straggler found = analysed_drawn(10);
    assert_int_equal(found.findings, 1);
    assert_finding(&found, 0, 3, MP_CAUSE_SLOW, (7 * 8 + 0.5) / 10);
    assert_close(found.finding[0].seen, 0.8, 1e-12);
}

/* Of 20 s: an event is more than 2, events are told of from 0.2 an iteration, or one from 10. */
static const struct event {
    double delay;
    int times;
    bool told;
} events[] = {{2.1, 6, true},  {1.9, 30, false}, {2.1, 5, false},
              {10.1, 1, true}, {9.9, 1, false},  {12.1, 1, true}};

TEST_ROWS(events_stand_out, events, event) {
    const int rank = (int)((event - events) % RANKS);
    draw(18);
    for (int i = 0; i < event->times; i++)
        drawn.work[2 * i][rank] += event->delay;
    if (event->times == 30) /* not half of them, which would be usual */
        drawn.work[0][rank] = drawn.work[2][rank] = 18;
    for (int i = 1; i < 20; i += 2) /* more than 1 %, and no event */
        drawn.work[i][rank] += event->times < 30 ? 1 : 0;
    AUTO(straggler) struct mp_straggler found = analysed_drawn(MOST);
    assert_int_equal(found.findings, event->told);
    if (!event->told)
        return;
    assert_finding(&found, 0, rank, MP_CAUSE_ONE_OFF, event->delay * event->times / MOST);
    assert_false(found.finding[0].chronic);
    assert_close(found.finding[0].seen, (double)event->times / MOST, 1e-12);
    assert_close(found.finding[0].worst, event->delay, 1e-9);
}

/* Rank 1 loads data for 1.5 % longer always, which is too little, and once for half an iteration:
 * that is told of, and it is not chronic. */
TEST(what_happened_once_is_not_chronic) {
    draw(18);
    drawn.phase = MP_PHASE_DATA;
    for (int i = 0; i < MOST; i++)
        drawn.work[i][1] += i == 40 ? 11 : 0.3;
    AUTO(straggler) struct mp_straggler found = analysed_drawn(MOST);
    assert_int_equal(found.findings, 1);
    assert_finding(&found, 0, 1, MP_CAUSE_DATA, 11.0 / MOST);
    assert_close(found.finding[0].seen, 1.0 / MOST, 1e-12);
    assert_false(found.finding[0].chronic);
}

/* Rank 3 begins 4 s late and works for 10: an iteration takes 16 s.  Where it had no core for most
 * of that while it had work, that is why, and it is late only by the rest. */
static struct mp_straggler without_core(double off_core) {
    draw(10);
    for (int i = 0; i < 10; i++) {
        drawn.start[i][3] = 4;
        drawn.off_core[i][3] = off_core;
    }
    return analysed_drawn(10);
}

TEST(a_rank_without_a_core_is_told_so) {
    AUTO(straggler) struct mp_straggler found = without_core(3.5);
    assert_int_equal(found.findings, 2);
    assert_finding(&found, 0, 3, MP_CAUSE_STOLEN, 3.5);
    assert_finding(&found, 1, 3, MP_CAUSE_BEFORE, 0.5);
    assert_close(found.finding[0].on_core, 8.5 / 12, 1e-12);
    assert_true(isnan(found.finding[1].on_core));
    assert_close(found.rank[3].cause[MP_CAUSE_STOLEN], 3 * 3.5, 1e-9);
    mp_straggler_destroy(&found);
    found = without_core(3.1); /* less than four fifths of it */
    assert_int_equal(found.findings, 1);
    assert_finding(&found, 0, 3, MP_CAUSE_BEFORE, 4);
    mp_straggler_destroy(&found);
    found = without_core(5); /* more than it was late by */
    assert_int_equal(found.findings, 1);
    assert_finding(&found, 0, 3, MP_CAUSE_STOLEN, 4);
}

/* The same in its work, now in this iteration and now in that one.  Where the others lack a core
 * just as long, that is how it is here. */
TEST(nobody_is_slow_where_all_lack_a_core) {
    draw(10);
    for (int i = 0; i < 10; i++) {
        drawn.start[i][3] = 4;
        for (int r = 0; r < RANKS; r++)
            drawn.off_core[i][r] = 4;
    }
    AUTO(straggler) struct mp_straggler found = analysed_drawn(10);
    assert_int_equal(found.findings, 1);
    assert_finding(&found, 0, 3, MP_CAUSE_BEFORE, 4);
}

/* Rank 3 takes 1 s more or less than so much longer than the others.  The error of its median is
 * 1.4826 * 1.2533 / sqrt(10), that of a difference sqrt(2) of it: three are 2.493 s. */
static struct mp_straggler about_longer(double longer) {
    draw(10);
    for (int i = 0; i < 10; i++)
        drawn.work[i][3] = 10 + longer + (i % 2 ? 1 : -1);
    return analysed_drawn(10);
}

TEST(usual_is_beyond_three_errors) {
    struct mp_straggler found = about_longer(2.53); /* 1.53 in five; in five 1 more, once each */
    assert_int_equal(found.findings, 1);
    assert_finding(&found, 0, 3, MP_CAUSE_SLOW, (1.53 + 2.53) / 2);
    mp_straggler_destroy(&found);
    found = about_longer(2.45); /* nothing is usual; 1.45 are there always, 2 more in five */
    assert_int_equal(found.findings, 2);
    assert_finding(&found, 0, 3, MP_CAUSE_SLOW, 1.45);
    assert_finding(&found, 1, 3, MP_CAUSE_ONE_OFF, 1);
    assert_close(found.finding[0].saved, 1.45, 1e-9); /* and what is left is saved once */
    assert_close(found.finding[1].saved, 1, 1e-9);
    mp_straggler_destroy(&found);
}

/* 3 % of an iteration, per rank that waits. */
TEST(findings_weigh_three_percent) {
    for (int more = 0; more < 2; more++) {
        draw(18 - 0.6);
        for (int i = 0; i < 10; i++)
            drawn.work[i][1] += more ? 0.62 : 0.58;
        AUTO(straggler) struct mp_straggler found = analysed_drawn(10);
        assert_int_equal(found.findings, more);
    }
}

/* Each begins 1 s late in turn: a quarter of it is too little of anybody's, but not the sum. */
TEST(lateness_in_turn_is_nobodys) {
    draw(17);
    for (int i = 0; i < 12; i++)
        drawn.start[i][i % RANKS] = 1;
    AUTO(straggler) struct mp_straggler found = analysed_drawn(12);
    assert_int_equal(found.findings, 1);
    assert_finding(&found, 0, -1, MP_CAUSE_BEFORE, 0.75);
    assert_close(found.finding[0].caused, 3, 1e-9);
    assert_close(found.finding[0].seen, 1, 1e-12);
    assert_true(found.finding[0].chronic);
    assert_int_equal(found.finding[0].victim, -1);
    assert_true(isnan(found.finding[0].tokens));
    mp_straggler_destroy(&found);
    for (int i = 3; i < 12; i += RANKS) /* rank 3 for longer than is usual here */
        drawn.start[i][3] = 4;
    found = analysed_drawn(12);
    assert_finding(&found, 0, 3, MP_CAUSE_BEFORE, 1);
}

/* Nobody has said how many tokens the experts of a layer had that has none: not known, not 0. */
TEST(tokens_are_those_of_experts) {
    draw(10);
    AUTO(straggler) struct mp_straggler found = analysed_drawn(10);
    assert_close(found.rank[0].tokens, 100, 1e-12);
    mp_straggler_destroy(&found);
    for (int s = 0; s < 2 * RANKS * 10; s += 2)
        drawn.span[s].phase = MP_PHASE_ATTENTION;
    found = analysed_times(RANKS, 10, drawn.rank, drawn.span, (size_t)(2 * RANKS * 10));
    for (int r = 0; r < RANKS; r++)
        assert_true(isnan(found.rank[r].tokens));
}

/* Forward and backward, work and transfers are types of their own, layers are not. */
TEST(types_are_phases_and_directions) {
    struct mp_recorded_rank rank[] = {{0, 24, 0, 8, 0}, {0, 24, 8, 8, 0}};
    struct mp_recorded_span span[16];
    for (int r = 0; r < 2; r++)
        for (int s = 0; s < 4; s++) {
            int layer = s % 2, direction = s < 2 ? MP_FORWARD : MP_BACKWARD;
            double begin = 6 * s, work = 2 + 2 * (r == s % 2 && s < 2); /* 2 more, going forward */
            span[8 * r + 2 * s] = (struct mp_recorded_span){
                begin, begin + work, 0, 100, layer, MP_PHASE_EXPERT, (uint8_t)direction};
            span[8 * r + 2 * s + 1] =
                (struct mp_recorded_span){begin + work, begin + 6,        6 - work,          100,
                                          layer,        MP_PHASE_COMBINE, (uint8_t)direction};
        }
    AUTO(straggler) struct mp_straggler found = analysed_times(2, 1, rank, span, 16);
    const struct mp_slowdowns *slow = &found.slowdowns;
    assert_int_equal(slow->types, 6);
    /* Ideally 3 + 2 twice, and 2 + 4 twice (nobody comes late): 22; as recorded 24. */
    assert_close(slow->ideal, 22, 1e-12);
    assert_numbers(slow->type[0].phase, MP_PHASE_EXPERT, slow->type[0].direction, MP_FORWARD);
    assert_false(slow->type[0].transfer);
    assert_close(slow->type[0].slowdown, 24 / 22.0, 1e-12);
    for (int t = 1; t < 6; t++)
        assert_close(slow->type[t].slowdown, 1, 1e-12);
}
