/* An error code's name, for what tests print. */
#pragma once

static inline const char *mp_code_name(int code) {
    static const char *const name[] = {
        "MP_OK",       "MP_EINVAL",   "MP_EIO",          "MP_ENOMEM",  "MP_EFORMAT",
        "MP_EVERSION", "MP_ENOSPACE", "MP_ENOTFOUND",    "MP_ELIMIT",  "MP_ECOMM",
        "MP_EDEVICE",  "MP_EPLAN",    "MP_EINTERRUPTED", "MP_EREFUSED"};
    int count = (int)(sizeof name / sizeof name[0]);
    return code <= 0 && code > -count ? name[-code] : "MP_E?";
}
