/* Who uses the library: processes between their first nvmlInit and their last nvmlShutdown. */
#ifndef NODEVET_SIM_CLIENTS_H
#define NODEVET_SIM_CLIENTS_H

#include <stdbool.h>

/* Count this process as a client, before it reads the state. */
void clients_enter(void);

/* Once for each clients_enter; false where there was none. */
bool clients_leave(void);

bool is_client(void);

#endif
