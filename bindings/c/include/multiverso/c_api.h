/* Multiverso's C functions where its programs look for them: #include <multiverso/c_api.h>. They are declared, and described, in syncline.h. */
#ifndef SYNCLINE_MULTIVERSO_C_API_H
#define SYNCLINE_MULTIVERSO_C_API_H

#include "../syncline.h"

#endif
