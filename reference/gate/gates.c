/* The registry of gates: see gate.h. */
#include <stddef.h>

#include "reference/gate/gate.h"

/* One line per gate; help lists them in this order, and loads of a number of choices are taken for
 * those of the first that fits. */
#define GATES(FIRST, GATE)                                                                         \
    FIRST(gshard)                                                                                  \
    GATE(switch)                                                                                   \
    GATE(softmax)                                                                                  \
    GATE(hash)                                                                                     \
    GATE(ktop1)                                                                                    \
    GATE(sam)                                                                                      \
    GATE(sigmoid)                                                                                  \
    GATE(tamoe)                                                                                    \
    GATE(dts)                                                                                      \
    GATE(base)                                                                                     \
    GATE(expertchoice)

#define DECLARE(name) extern const struct mp_gate_kind mp_gate_##name;
GATES(DECLARE, DECLARE)

#define ADDRESS(name) &mp_gate_##name,
const struct mp_gate_kind *const mp_gate_kinds[] = {GATES(ADDRESS, ADDRESS) NULL};

#define FIRST_WORD(name) #name
#define NEXT_WORD(name) " " #name
const char mp_gate_names[] = GATES(FIRST_WORD, NEXT_WORD);
