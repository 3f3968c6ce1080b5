/** The live page: what there is to see of a running gateway, drawn anew every second. */

import { html } from 'htm/preact';
import { render } from 'preact';
import { App } from './app.js';
import { GatewayClient } from './gateway-client.js';

const place = document.getElementById('page');
if (place !== null) render(html`<${App} client=${new GatewayClient()} />`, place);
